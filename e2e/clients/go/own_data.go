package main

import (
	"bytes"
	"fmt"
	"os"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
)

// Readers get only their own data, whatever the server refuses.
func ownData(address string) {
	c := memcache.New(address)
	c.Timeout = 20 * time.Second
	users := []string{"alice", "bob", "carol", "dave"}
	own := func(item *memcache.Item, name, what string) {
		checks++
		if item != nil && string(item.Value) != "data-"+name {
			fmt.Fprintf(os.Stderr, "%s: asked for %s, got %.80q\n", what, name, item.Value)
			os.Exit(1)
		}
	}
	readAll := func(what string) {
		for _, name := range users {
			item, err := c.Get("user:" + name)
			is(err, nil, what)
			own(item, name, what)
		}
	}
	for _, name := range users {
		is(c.Set(&memcache.Item{Key: "user:" + name, Value: []byte("data-" + name)}), nil, "Set")
	}
	c.Get("large")
	readAll("after a large value")
	many, _ := c.GetMulti([]string{"user:alice", "large", "user:bob"})
	own(many["user:alice"], "alice", "many keys")
	own(many["user:bob"], "bob", "many keys")
	readAll("after many keys with a refused one")
	c.Set(&memcache.Item{Key: "user:photo", Value: bytes.Repeat([]byte("x"), 2<<20)})
	readAll("after a value that is too large")
	c.Increment("user:alice", 1)
	readAll("after a count of what is no number")
}
