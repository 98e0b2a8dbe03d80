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
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// errRefused is a server's refusal of a request that it does not know, or has no right to.
var errRefused = errors.New("holdall: refused")

// errServer is a server's error, behind which its connection goes on.
var errServer = errors.New("holdall: the server failed")

// connectionsMax is how many connections are in use at a time, and how many are kept.
const connectionsMax = 64

// lineMax is how long a reply's line may be.
const lineMax = 4096

// valueMax is how long a value may be, in bytes.
const valueMax = 1 << 30

// pool holds connections to one server or router.
type pool struct {
	network, address string
	timeout          time.Duration
	// slots has an element for each connection in use.
	slots  chan struct{}
	mutex  sync.Mutex
	idle   []*conn
	closed bool
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

// enter waits until one more connection may be in use.
func (p *pool) enter(ctx context.Context, until time.Time) error {
	select {
	case p.slots <- struct{}{}:
		return nil
	default:
	}
	late := time.NewTimer(time.Until(until))
	defer late.Stop()
	select {
	case p.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-late.C:
		return fmt.Errorf("holdall: %d connections are in use: %w", connectionsMax, os.ErrDeadlineExceeded)
	}
}

func (p *pool) take(ctx context.Context, until time.Time, fresh bool) (*conn, error) {
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
	dialer := net.Dialer{Deadline: until}
	plain, err := dialer.DialContext(ctx, p.network, p.address)
	if err != nil {
		return nil, err
	}
	return &conn{Conn: plain, reader: bufio.NewReaderSize(plain, lineMax)}, nil
}

func (p *pool) put(c *conn) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.closed || len(p.idle) >= connectionsMax {
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

// readReply reads the reply to one request.
type readReply func(*bufio.Reader) (reply, error)

// ask sends one request, and reads its reply with read.
func (p *pool) ask(ctx context.Context, request []byte, read readReply) (reply, error) {
	until := time.Now().Add(p.timeout)
	if err := p.enter(ctx, until); err != nil {
		return reply{}, err
	}
	defer func() { <-p.slots }()
	got, isIdle, err := p.try(ctx, until, request, read, false)
	if isIdle {
		// A server has closed it while nobody used it, so it has not seen the request.
		got, _, err = p.try(ctx, until, request, read, true)
	}
	return got, err
}

func (p *pool) try(ctx context.Context, until time.Time, request []byte, read readReply, fresh bool) (reply, bool, error) {
	c, err := p.take(ctx, until, fresh)
	if err != nil {
		return reply{}, false, err
	}
	if err := c.SetDeadline(until); err != nil {
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
	inStep := err == nil || errors.Is(err, errRefused) || errors.Is(err, errServer)
	inStep = inStep && c.reader.Buffered() == 0
	// A connection whose deadline was moved, or that is out of step, serves nobody else.
	if !stop() || !inStep {
		c.Close()
		return got, false, err
	}
	p.put(c)
	return got, false, err
}

func line(r *bufio.Reader) (string, error) {
	raw, err := r.ReadSlice('\n')
	return string(bytes.TrimRight(raw, "\r\n")), err
}

// head reads the first line of a reply, and turns a server's error into one of ours.
func head(r *bufio.Reader) (string, error) {
	text, err := line(r)
	switch {
	case err != nil:
		return "", err
	case text == "ERROR" || strings.HasPrefix(text, "CLIENT_ERROR"):
		return "", fmt.Errorf("%w: %s", errRefused, text)
	case strings.HasPrefix(text, "SERVER_ERROR"):
		return "", fmt.Errorf("%w: %s", errServer, text)
	}
	return text, nil
}

func unexpected(text string) error {
	return fmt.Errorf("holdall: an unexpected reply: %q", text)
}

// oneOf reads a reply that is one of these words.
func oneOf(words ...string) readReply {
	return func(r *bufio.Reader) (reply, error) {
		word, err := head(r)
		if err == nil && !slices.Contains(words, word) {
			err = unexpected(word)
		}
		return reply{word: word}, err
	}
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

// retrieve sends get, gets or lease-get of a key.
func (p *pool) retrieve(ctx context.Context, command, key string) (reply, error) {
	read := func(r *bufio.Reader) (reply, error) { return retrieved(r, key) }
	return p.ask(ctx, []byte(command+" "+key+"\r\n"), read)
}

func retrieved(r *bufio.Reader, key string) (reply, error) {
	text, err := head(r)
	if err != nil || text == "END" {
		return reply{}, err
	}
	words := strings.Split(text, " ")
	if len(words) < 2 || words[1] != key {
		return reply{}, unexpected(text)
	}
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
		return got, unexpected(text)
	}
	if got.value, err = block(r, length); err != nil {
		return got, err
	}
	got.stale = !got.found && len(got.value) > 0
	end, err := line(r)
	if err == nil && end != "END" {
		err = unexpected(end)
	}
	return got, err
}

// retrieveEarly asks for a value, or for a lease also some seconds before the value ends.
func (p *pool) retrieveEarly(ctx context.Context, key string, secs uint32) (reply, error) {
	read := func(r *bufio.Reader) (reply, error) { return meta(r, key) }
	return p.ask(ctx, fmt.Appendf(nil, "mg %s k v c G R%d\r\n", key, secs), read)
}

func meta(r *bufio.Reader, key string) (reply, error) {
	text, err := head(r)
	if err != nil {
		return reply{}, err
	}
	words := strings.Split(text, " ")
	if len(words) < 2 || words[0] != "VA" || !slices.Contains(words[2:], "k"+key) {
		return reply{}, unexpected(text)
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
