// Package holdall reads through a memcached tier: a value comes from the cache or else from a
// loader, and one caller of all programs loads a missing key.
//
// It speaks to a holdall router on the same host, or to one server. Programs keep their usual
// memcached client for everything else; both see the same items. The protocol is described in
// docs/look-aside.md.
package holdall

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"strings"
	"sync/atomic"
	"time"
)

// ErrKey is returned for a key that is empty, longer than 250 bytes, or has a blank or a control
// character in it.
var ErrKey = errors.New("holdall: a key is 1 to 250 bytes without blanks or control characters")

// refusedFor is how long a key whose lease was refused is read without one.
const refusedFor = 30 * time.Second

// refusedPlaces is how many such keys are remembered.
const refusedPlaces = 1024

// Client is a handle to a router or a server, for any number of goroutines.
type Client struct {
	pool    pool
	flights flights
	seed    maphash.Seed
	refused [refusedPlaces]atomic.Pointer[refusal]
	// meanLoad is the mean time of loads, in nanoseconds.
	meanLoad atomic.Int64
}

type refusal struct {
	key   string
	until time.Time
}

// New makes a client of "host:port", or of the path of a Unix socket. A request that takes longer
// than timeout fails; 0 is a second. The client uses up to 64 connections at a time; requests
// beyond wait for one, within their timeout.
func New(address string, timeout time.Duration) *Client {
	network := "tcp"
	if strings.HasPrefix(address, "/") {
		network = "unix"
	}
	if timeout <= 0 {
		timeout = time.Second
	}
	return &Client{
		pool: pool{
			network: network, address: address, timeout: timeout,
			slots: make(chan struct{}, connectionsMax),
		},
		seed: maphash.MakeSeed(),
	}
}

// Close closes the idle connections; later calls load without the cache.
func (c *Client) Close() {
	c.pool.close()
}

// Delete deletes a key. Call it when a write is committed.
func (c *Client) Delete(ctx context.Context, key string) error {
	if err := check(key); err != nil {
		return err
	}
	c.flights.detach(key)
	_, err := c.pool.ask(ctx, []byte("delete "+key+"\r\n"), oneOf("DELETED", "NOT_FOUND"))
	return err
}

func check(key string) error {
	if len(key) == 0 || len(key) > 250 {
		return ErrKey
	}
	for at := 0; at < len(key); at++ {
		if key[at] <= ' ' || key[at] == 0x7f {
			return ErrKey
		}
	}
	return nil
}

// item is what a storage command stores.
type item struct {
	flags   uint32
	exptime int64
	value   []byte
}

// store sends a storage command; number is the token of lease-set or the unique of cas. It tells
// whether the server has stored the value.
func (c *Client) store(ctx context.Context, command, key string, number uint64, i item) (bool, error) {
	value := i.value
	head := fmt.Sprintf("%s %s %d %d %d\r\n", command, key, i.flags, i.exptime, len(value))
	switch command {
	case "lease-set":
		head = fmt.Sprintf("%s %s %d %d %d %d\r\n", command, key, number, i.flags, i.exptime, len(value))
	case "cas":
		head = fmt.Sprintf("%s %s %d %d %d %d\r\n", command, key, i.flags, i.exptime, len(value), number)
	}
	request := make([]byte, 0, len(head)+len(value)+2)
	request = append(append(append(request, head...), value...), "\r\n"...)
	got, err := c.pool.ask(ctx, request, stored)
	return got.word == "STORED", err
}

// stored reads the reply to a storage command. After an error the server may take the block for
// commands, so the connection is not used any more.
func stored(r *bufio.Reader) (reply, error) {
	got, err := oneOf("STORED", "NOT_STORED", "EXISTS", "NOT_FOUND")(r)
	if errors.Is(err, errRefused) {
		err = errors.New(err.Error())
	}
	return got, err
}

func (c *Client) place(key string) *atomic.Pointer[refusal] {
	return &c.refused[maphash.String(c.seed, key)%refusedPlaces]
}

func (c *Client) isRefused(key string) bool {
	noted := c.place(key).Load()
	return noted != nil && noted.key == key && time.Now().Before(noted.until)
}

func (c *Client) noteRefused(key string) {
	c.place(key).Store(&refusal{key: key, until: time.Now().Add(refusedFor)})
}
