package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
)

const (
	loadUsers = 2
	loadBytes = 20_000
	// A line on stdout stands for this many requests.
	loadLine = 50
)

// Sends requests until stdin ends, like an application whose servers are restarted. gomemcache
// reports a closed connection to its caller, and this caller retries once. Any other error, a
// partial or a wrong reply ends the program.
func load(address string) {
	var users sync.WaitGroup
	var isOver atomic.Bool
	var requests, repeated atomic.Int64
	value := bytes.Repeat([]byte("v"), loadBytes)
	for range make([]struct{}, loadUsers) {
		users.Add(1)
		go func() {
			defer users.Done()
			c := memcache.New(address)
			c.Timeout = 20 * time.Second
			c.MaxIdleConns = 1
			attempt := func(what string, call func() error) {
				err := call()
				if wasClosed(err) {
					repeated.Add(1)
					err = call()
				}
				if err != nil {
					fmt.Fprintf(os.Stderr, "%s: %v\n", what, err)
					os.Exit(1)
				}
				if requests.Add(1)%loadLine == 0 {
					fmt.Println(loadLine)
				}
			}
			for !isOver.Load() {
				attempt("Get", func() error {
					item, err := c.Get("k")
					if err == nil && !bytes.Equal(item.Value, value) {
						err = errors.New("a wrong value")
					}
					return err
				})
				attempt("Set", func() error {
					return c.Set(&memcache.Item{Key: "gomemcache", Value: value})
				})
			}
		}()
	}
	io.Copy(io.Discard, os.Stdin)
	isOver.Store(true)
	users.Wait()
	fmt.Printf("gomemcache: %d requests, %d repeated\n", requests.Load(), repeated.Load())
}

// True if the connection was closed before any byte of the reply.
func wasClosed(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}
