//go:build scenarios

package holdall

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

type scenario struct {
	Name  string
	On    []string
	Steps []step
}

type step struct {
	Wire, Reply string
	Until       bool
	Read        *readStep
	Write       *writeStep
	Position    *string
	Text, Query string
	Delete      string
	Repeat      int
	Steps       []step
	Value       *string
	Error       string
	Loads       int64
	Source      string
}

type readStep struct {
	Key            string
	Returns        string
	Fails, Markers string
	Cancelled      bool
	Exact          bool
	TakesStale     *bool   `json:"takes_stale"`
	EarlyRefresh   float64 `json:"early_refresh"`
	Exptime        int64
	WaitTotalMs    int64 `json:"wait_total_ms"`
	Callers        int
	TakesMs        int64 `json:"takes_ms"`
	During, Then   []step
	AfterMs        int64 `json:"after_ms"`
}

type writeStep struct {
	Key, Markers, Fails string
	TTL                 int64
	At                  []string
	During              []step
	Marked              *bool
}

// run is a scenario at one target.
type run struct {
	t       *testing.T
	target  string
	name    string
	client  *Client
	address string
	words   map[string]string
}

func (r *run) fill(text string) string {
	for word, meaning := range r.words {
		text = strings.ReplaceAll(text, "{"+word+"}", meaning)
	}
	return text
}

// TestScenarios runs the file of scenarios that HOLDALL_SCENARIOS names, at each of HOLDALL_TARGETS,
// "name=host:port" separated by blanks.
func TestScenarios(t *testing.T) {
	text, err := os.ReadFile(os.Getenv("HOLDALL_SCENARIOS"))
	if err != nil {
		t.Fatal(err)
	}
	for _, target := range strings.Fields(os.Getenv("HOLDALL_TARGETS")) {
		name, address, _ := strings.Cut(target, "=")
		client := New(address, time.Minute)
		defer client.Close()
		for number, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
			var s scenario
			if err := json.Unmarshal([]byte(line), &s); err != nil {
				t.Fatal(err)
			}
			if slices.Contains(s.On, name) {
				words := map[string]string{"k": fmt.Sprintf("go:%s:%d", name, number)}
				r := &run{t, name, s.Name, client, address, words}
				r.steps(s.Steps)
			}
		}
	}
}

func (r *run) steps(steps []step) {
	for _, s := range steps {
		switch {
		case s.Wire != "":
			r.wire(s)
		case s.Read != nil:
			r.read(s)
		case s.Write != nil:
			r.write(*s.Write, s.Error)
			fmt.Printf("result: %s at %s: written\n", r.name, r.target)
		case s.Position != nil:
			text, query := "", ""
			if place, err := ParsePosition(*s.Position); err == nil {
				text, query = place.String(), place.ReachedQuery()
			}
			if text != s.Text || query != s.Query {
				r.t.Fatalf("%s: %q: %q, %q", r.name, *s.Position, text, query)
			}
			fmt.Printf("result: %s at %s: %s\n", r.name, r.target, cmp.Or(text, "none"))
		case s.Delete != "":
			if err := r.client.Delete(context.Background(), r.fill(s.Delete)); err != nil {
				r.t.Fatalf("%s at %s: %v", r.name, r.target, err)
			}
		default:
			for n := 0; n < s.Repeat; n++ {
				r.words["n"] = strconv.Itoa(n)
				r.steps(s.Steps)
			}
		}
	}
}

// write writes under a marker; with places by a writer for each, none of which ends before all of
// them have begun.
func (r *run) write(w writeStep, failure string) {
	m, ctx, key := Markers{w.Markers, w.TTL}, context.Background(), r.fill(w.Key)
	check := func(err error) {
		isMarked := w.Marked == nil || *w.Marked
		isRight := (err == nil) == isMarked
		if failure != "" {
			isRight = err != nil && err.Error() == failure
		}
		if !isRight {
			r.t.Errorf("%s at %s: a marked write: %v", r.name, r.target, err)
		}
	}
	if w.At == nil {
		check(r.client.WriteMarked(ctx, key, m, func(context.Context, string) error { return nil }))
		return
	}
	var begun, ended sync.WaitGroup
	begun.Add(len(w.At))
	ended.Add(len(w.At))
	for _, at := range w.At {
		go func() {
			defer ended.Done()
			check(r.client.WriteMarkedAt(ctx, key, m, func(context.Context) (Position, error) {
				begun.Done()
				begun.Wait()
				r.steps(w.During)
				if w.Fails != "" {
					return Position{}, errors.New(w.Fails)
				}
				return ParsePosition(at)
			}))
		}()
	}
	ended.Wait()
}

// wire sends raw bytes and compares the reply, whose {token} is any number above 1.
func (r *run) wire(s step) {
	until := time.Now().Add(20 * time.Second)
	for {
		got := r.exchange(s)
		want := r.fill(strings.ReplaceAll(s.Reply, "{token}", "\x00"))
		before, after, hasToken := strings.Cut(want, "\x00")
		token := strings.TrimSuffix(strings.TrimPrefix(got, before), after)
		number, err := strconv.ParseUint(token, 10, 64)
		if !hasToken && got == want {
			return
		}
		if hasToken && before+token+after == got && err == nil && number > 1 {
			r.words["token"] = token
			return
		}
		if !s.Until || time.Now().After(until) {
			r.t.Fatalf("%s at %s: %q: got %q, want %q", r.name, r.target, s.Wire, got, s.Reply)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (r *run) exchange(s step) string {
	c, err := net.Dial("tcp", r.address)
	if err != nil {
		r.t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(20 * time.Second))
	fmt.Fprint(c, r.fill(s.Wire))
	var got strings.Builder
	lines := bufio.NewReader(c)
	for range strings.Count(s.Reply, "\n") {
		line, err := lines.ReadString('\n')
		got.WriteString(line)
		if err != nil {
			break
		}
	}
	return got.String()
}

func (r *run) read(s step) {
	a := s.Read
	var loads atomic.Int64
	var source atomic.Value
	source.Store("")
	o := Options{Exptime: a.Exptime, EarlyRefresh: a.EarlyRefresh, WaitTotal: time.Duration(a.WaitTotalMs) * time.Millisecond}
	o.RefuseStale = a.TakesStale != nil && !*a.TakesStale
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	load := func(ctx context.Context, from Source) ([]byte, error) {
		loads.Add(1)
		source.Store(string(from))
		r.steps(a.During)
		time.Sleep(time.Duration(a.TakesMs) * time.Millisecond)
		if a.Cancelled {
			cancel()
			<-ctx.Done()
			return nil, ctx.Err()
		}
		if a.Fails != "" {
			return nil, errors.New(a.Fails)
		}
		return []byte(a.Returns), nil
	}
	var others sync.WaitGroup
	if a.Then != nil {
		others.Add(1)
		time.AfterFunc(time.Duration(a.AfterMs)*time.Millisecond, func() { r.steps(a.Then); others.Done() })
	}
	for range max(a.Callers, 1) {
		others.Add(1)
		go func() {
			defer others.Done()
			var value []byte
			var err error
			if a.Exact {
				at := func(ctx context.Context, from ReadFrom) ([]byte, error) {
					if from.Place != nil {
						from.Source += Source(" " + from.Place.String())
					}
					return load(ctx, from.Source)
				}
				value, err = r.client.GetOrLoadAt(ctx, r.fill(a.Key), o, Markers{Prefix: a.Markers}, at)
			} else if a.Markers != "" {
				value, err = r.client.GetOrLoadFrom(ctx, r.fill(a.Key), o, Markers{Prefix: a.Markers}, load)
			} else {
				plain := func(ctx context.Context) ([]byte, error) { return load(ctx, "") }
				value, err = r.client.GetOrLoad(ctx, r.fill(a.Key), o, plain)
			}
			got := "value " + string(value)
			if errors.Is(err, context.Canceled) {
				got = "error cancelled"
			} else if err != nil {
				got = "error " + err.Error()
			}
			want := "error " + s.Error
			if s.Value != nil {
				want = "value " + *s.Value
			}
			if got != want {
				r.t.Errorf("%s at %s: got %q, want %q", r.name, r.target, got, want)
			}
		}()
	}
	others.Wait()
	if loads.Load() != s.Loads || source.Load() != s.Source {
		r.t.Fatalf("%s at %s: %d loads from %q", r.name, r.target, loads.Load(), source.Load())
	}
	fmt.Printf("result: %s at %s: %d loads\n", r.name, r.target, loads.Load())
}
