package holdall

import (
	"bufio"
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// at starts a server whose nth connection is answered by the nth of these functions, and more of
// them by the last. The connection is closed behind it.
func at(t *testing.T, serve ...func(*bufio.Reader, net.Conn)) *Client {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	client := New(listener.Addr().String(), 20*time.Second)
	t.Cleanup(func() {
		client.Close()
		listener.Close()
	})
	go func() {
		for n := 0; ; n++ {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve[min(n, len(serve)-1)](bufio.NewReader(c), c)
			}()
		}
	}()
	return client
}

// answers answers each line with the next of these replies, and then waits for the end.
func answers(replies ...string) func(*bufio.Reader, net.Conn) {
	return func(r *bufio.Reader, c net.Conn) {
		for _, reply := range replies {
			if _, err := r.ReadString('\n'); err != nil {
				return
			}
			c.Write([]byte(reply))
		}
		r.ReadString('\x00')
	}
}

func loaded(context.Context) ([]byte, error) { return []byte("loaded"), nil }

func TestRepliesOfAnotherKey(t *testing.T) {
	early := Options{EarlyRefresh: 1}
	for _, test := range []struct {
		reply, want string
		o           Options
	}{
		{"VALUE other 0 5\r\nwrong\r\nEND\r\n", "loaded", Options{}},
		{"VALUE one 0 5\r\nright\r\nEND\r\n", "right", Options{}},
		{"LVALUE other 77 0 0\r\n\r\nEND\r\n", "loaded", Options{}},
		{"VALUE one 0 5\r\nwrong\r\nCLIENT_ERROR late\r\n", "loaded", Options{}},
		{"VA 5 kother f0 c9\r\nwrong\r\n", "loaded", early},
		{"VA 5 f0 c9\r\nwrong\r\n", "loaded", early},
		{"VA 5 kone f0 c9\r\nright\r\n", "right", early},
	} {
		client := at(t, answers(test.reply))
		got, err := client.GetOrLoad(context.Background(), "one", test.o, loaded)
		if err != nil || string(got) != test.want {
			t.Errorf("%q: got %q, %v", test.reply, got, err)
		}
	}
}

func TestConnectionsOutOfStep(t *testing.T) {
	for reply, isRight := range map[string]bool{
		"STORED\r\n":             false,
		"DELETED\r\nDELETED\r\n": true,
	} {
		client := at(t, answers(reply), answers("NOT_FOUND\r\n"))
		err := client.Delete(context.Background(), "one")
		if (err == nil) != isRight {
			t.Errorf("%q: %v", reply, err)
		}
		if err := client.Delete(context.Background(), "two"); err != nil {
			t.Errorf("behind %q: %v", reply, err)
		}
	}
}

func TestAConnectionGoesOnBehindServerError(t *testing.T) {
	client := at(t, answers("SERVER_ERROR busy\r\n", "DELETED\r\n"), answers("STORED\r\n"))
	if err := client.Delete(context.Background(), "one"); !errors.Is(err, errServer) {
		t.Error(err)
	}
	if err := client.Delete(context.Background(), "one"); err != nil {
		t.Error(err)
	}
}

func TestACallThatIsCancelledTakesItsConnectionAlong(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	half := func(r *bufio.Reader, c net.Conn) {
		r.ReadString('\n')
		c.Write([]byte("STOR"))
		cancel()
		r.ReadString('\n')
		c.Write([]byte("ED\r\nSTORED\r\n"))
	}
	client := at(t, half, answers("DELETED\r\n"))
	if err := client.Delete(ctx, "one"); err == nil {
		t.Error("a cancelled call has succeeded")
	}
	if err := client.Delete(context.Background(), "two"); err != nil {
		t.Error(err)
	}
}

// A load that does not look at its context keeps its lease from nobody.
func TestALoadThatGoesOnGivesItsLeaseBack(t *testing.T) {
	released := make(chan string)
	lease := func(r *bufio.Reader, c net.Conn) {
		r.ReadString('\n')
		c.Write([]byte("LVALUE one 77 0 0\r\n\r\nEND\r\n"))
		head, _ := r.ReadString('\n')
		r.ReadString('\n')
		c.Write([]byte("NOT_STORED\r\n"))
		released <- head
		head, _ = r.ReadString('\n')
		released <- head
	}
	client := at(t, lease)
	ctx, cancel := context.WithCancel(context.Background())
	got, err := client.GetOrLoad(ctx, "one", Options{}, func(context.Context) ([]byte, error) {
		cancel()
		select {
		case head := <-released:
			if head != "lease-set one 77 0 -1 0\r\n" {
				t.Errorf("%q", head)
			}
		case <-time.After(20 * time.Second):
			t.Error("the lease is kept")
		}
		return []byte("mine"), nil
	})
	if err != nil || string(got) != "mine" {
		t.Errorf("%q, %v", got, err)
	}
	client.Close()
	if head := <-released; head != "" {
		t.Errorf("stored behind the release: %q", head)
	}
}

func TestALoadThatPanicsGivesItsLeaseBack(t *testing.T) {
	heads := make(chan string, 1)
	lease := func(r *bufio.Reader, c net.Conn) {
		r.ReadString('\n')
		c.Write([]byte("LVALUE one 77 0 0\r\n\r\nEND\r\n"))
		head, _ := r.ReadString('\n')
		r.ReadString('\n')
		c.Write([]byte("NOT_STORED\r\n"))
		heads <- head
		answers("VALUE one 0 5\r\nright\r\nEND\r\n")(r, c)
	}
	client := at(t, lease)
	func() {
		defer func() {
			if recover() != "a bug" {
				t.Error("the panic was lost")
			}
		}()
		client.GetOrLoad(context.Background(), "one", Options{}, func(context.Context) ([]byte, error) {
			panic("a bug")
		})
	}()
	if head := <-heads; head != "lease-set one 77 0 -1 0\r\n" {
		t.Errorf("%q", head)
	}
	got, err := client.GetOrLoad(context.Background(), "one", Options{}, loaded)
	if err != nil || string(got) != "right" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	var mutex sync.Mutex
	connections, waiting := 0, 0
	full := make(chan struct{})
	client := at(t, func(r *bufio.Reader, c net.Conn) {
		mutex.Lock()
		connections++
		mutex.Unlock()
		for {
			line, err := r.ReadString('\n')
			if !strings.HasPrefix(line, "delete ") || err != nil {
				return
			}
			mutex.Lock()
			if waiting++; waiting == connectionsMax {
				close(full)
			}
			mutex.Unlock()
			<-full
			c.Write([]byte("DELETED\r\n"))
		}
	})
	var callers sync.WaitGroup
	for range 5 * connectionsMax {
		callers.Add(1)
		go func() {
			defer callers.Done()
			if err := client.Delete(context.Background(), "one"); err != nil {
				t.Error(err)
			}
		}()
	}
	callers.Wait()
	mutex.Lock()
	defer mutex.Unlock()
	if connections > connectionsMax {
		t.Errorf("%d connections", connections)
	}
}
