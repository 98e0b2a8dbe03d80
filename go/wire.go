package holdall

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// errRefused is a server's refusal of a request that it does not know, or has no right to.
var errRefused = errors.New("holdall: refused")

// idleMax is how many idle connections are kept.
const idleMax = 64

// lineMax is how long a reply's line may be.
const lineMax = 4096

// valueMax is how long a value may be, in bytes.
const valueMax = 1 << 30

// pool holds connections to one server or router.
type pool struct {
	network, address string
	timeout          time.Duration
	mutex            sync.Mutex
	idle             []*conn
	closed           bool
}

type conn struct {
	net.Conn
	reader *bufio.Reader
	reused bool
}

// reply is what a server says about a key.
type reply struct {
	word  string
	value []byte
	// found: a value is there. stale: one was deleted a short time ago. won: this reader is to load.
	found, stale, won bool
	token, cas        uint64
}

func (p *pool) take(ctx context.Context, fresh bool) (*conn, error) {
	p.mutex.Lock()
	if p.closed {
		p.mutex.Unlock()
		return nil, net.ErrClosed
	}
	if last := len(p.idle) - 1; last >= 0 && !fresh {
		c := p.idle[last]
		p.idle = p.idle[:last]
		p.mutex.Unlock()
		c.reused = true
		return c, nil
	}
	p.mutex.Unlock()
	dialer := net.Dialer{Timeout: p.timeout}
	plain, err := dialer.DialContext(ctx, p.network, p.address)
	if err != nil {
		return nil, err
	}
	return &conn{Conn: plain, reader: bufio.NewReaderSize(plain, lineMax)}, nil
}

func (p *pool) put(c *conn) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.closed || len(p.idle) >= idleMax {
		c.Close()
		return
	}
	p.idle = append(p.idle, c)
}

func (p *pool) close() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.closed = true
	for _, c := range p.idle {
		c.Close()
	}
	p.idle = nil
}

// ask sends one request, and reads its reply with read.
func (p *pool) ask(ctx context.Context, request []byte, read func(*bufio.Reader) (reply, error)) (reply, error) {
	got, isIdle, err := p.try(ctx, request, read, false)
	if isIdle {
		// A server has closed it while nobody used it, so it has not seen the request.
		got, _, err = p.try(ctx, request, read, true)
	}
	return got, err
}

func (p *pool) try(ctx context.Context, request []byte, read func(*bufio.Reader) (reply, error), fresh bool) (reply, bool, error) {
	c, err := p.take(ctx, fresh)
	if err != nil {
		return reply{}, false, err
	}
	if err := c.SetDeadline(time.Now().Add(p.timeout)); err != nil {
		c.Close()
		return reply{}, false, err
	}
	stop := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
	_, err = c.Write(request)
	if err == nil {
		_, err = c.reader.Peek(1)
	}
	if err != nil {
		stop()
		c.Close()
		isIdle := c.reused && ctx.Err() == nil && !errors.Is(err, os.ErrDeadlineExceeded)
		return reply{}, isIdle, err
	}
	got, err := read(c.reader)
	inStep := err == nil || errors.Is(err, errRefused)
	// A connection whose deadline was moved, or that is out of step, serves nobody else.
	if !stop() || !inStep {
		c.Close()
		return got, false, err
	}
	p.put(c)
	return got, false, err
}

// line reads a line, and turns a server's error into one of ours.
func line(r *bufio.Reader) (string, error) {
	raw, err := r.ReadSlice('\n')
	if err != nil {
		return "", err
	}
	text := string(bytes.TrimRight(raw, "\r\n"))
	switch {
	case text == "ERROR" || strings.HasPrefix(text, "CLIENT_ERROR"):
		return "", fmt.Errorf("%w: %s", errRefused, text)
	case strings.HasPrefix(text, "SERVER_ERROR"):
		return "", fmt.Errorf("holdall: %s", text)
	}
	return text, nil
}

// simple reads a reply of one line.
func simple(r *bufio.Reader) (reply, error) {
	word, err := line(r)
	return reply{word: word}, err
}

// block reads the value of a length that a line has told.
func block(r *bufio.Reader, length string) ([]byte, error) {
	n, err := strconv.Atoi(length)
	if err != nil || n < 0 || n > valueMax {
		return nil, fmt.Errorf("holdall: no length: %q", length)
	}
	value := make([]byte, n+2)
	if _, err := io.ReadFull(r, value); err != nil {
		return nil, err
	}
	if !bytes.HasSuffix(value, []byte("\r\n")) {
		return nil, errors.New("holdall: a value does not end where its length says")
	}
	return value[:n], nil
}

// retrieved reads the reply to get, gets and lease-get of one key.
func retrieved(r *bufio.Reader) (reply, error) {
	text, err := line(r)
	if err != nil || text == "END" {
		return reply{}, err
	}
	words := strings.Split(text, " ")
	got, length := reply{}, words[len(words)-1]
	switch {
	case len(words) == 4 && words[0] == "VALUE":
		got.found = true
	case len(words) == 5 && words[0] == "VALUE":
		got.found, length = true, words[3]
		if got.cas, err = strconv.ParseUint(words[4], 10, 64); err != nil {
			return got, fmt.Errorf("holdall: no number: %q", text)
		}
	case len(words) == 5 && words[0] == "LVALUE":
		if got.token, err = strconv.ParseUint(words[2], 10, 64); err != nil {
			return got, fmt.Errorf("holdall: no token: %q", text)
		}
	default:
		return got, fmt.Errorf("holdall: an unexpected reply: %q", text)
	}
	if got.value, err = block(r, length); err != nil {
		return got, err
	}
	got.stale = !got.found && len(got.value) > 0
	end, err := line(r)
	if err == nil && end != "END" {
		err = fmt.Errorf("holdall: an unexpected reply: %q", end)
	}
	return got, err
}

// meta reads the reply to mg with the flags v, c, G and R.
func meta(r *bufio.Reader) (reply, error) {
	text, err := line(r)
	if err != nil {
		return reply{}, err
	}
	words := strings.Split(text, " ")
	if len(words) < 2 || words[0] != "VA" {
		return reply{}, fmt.Errorf("holdall: an unexpected reply: %q", text)
	}
	got := reply{token: 1}
	hasToken := false
	for _, word := range words[2:] {
		switch {
		case word == "W":
			got.won = true
		case word == "X":
			got.stale = true
		case strings.HasPrefix(word, "c"):
			got.cas, err = strconv.ParseUint(word[1:], 10, 64)
		case strings.HasPrefix(word, "G"):
			hasToken = true
			got.token, err = strconv.ParseUint(word[1:], 10, 64)
		}
		if err != nil {
			return got, fmt.Errorf("holdall: no number: %q", text)
		}
	}
	got.value, err = block(r, words[1])
	got.found = !hasToken && got.cas != 0
	return got, err
}
