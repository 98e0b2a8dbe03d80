// Every command of gomemcache (classic text protocol, compares whole reply lines).
package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"github.com/bradfitz/gomemcache/memcache"
)

var checks int

func same(got, want any, what string) {
	checks++
	if fmt.Sprint(got) != fmt.Sprint(want) {
		fmt.Fprintf(os.Stderr, "%s: got %v, want %v\n", what, got, want)
		os.Exit(1)
	}
}

func is(got, want error, what string) {
	checks++
	if !errors.Is(got, want) {
		fmt.Fprintf(os.Stderr, "%s: got %v, want %v\n", what, got, want)
		os.Exit(1)
	}
}

func main() {
	switch {
	case len(os.Args) == 2:
		everyCommand(os.Args[1])
	case os.Args[2] == "own-data":
		ownData(os.Args[1])
	default:
		load(os.Args[1])
		return
	}
	fmt.Printf("gomemcache: %d checks passed\n", checks)
}

func everyCommand(address string) {
	c := memcache.New(address)
	is(c.Ping(), nil, "Ping")
	is(c.FlushAll(), nil, "FlushAll")
	_, err := c.Get("a")
	is(err, memcache.ErrCacheMiss, "Get of nothing")
	is(c.Set(&memcache.Item{Key: "a", Value: []byte("one"), Flags: 7}), nil, "Set")
	item, err := c.Get("a")
	is(err, nil, "Get")
	same(string(item.Value), "one", "the value")
	same(item.Flags, uint32(7), "the flags")
	is(c.Add(&memcache.Item{Key: "a", Value: []byte("two")}), memcache.ErrNotStored, "Add over a value")
	is(c.Add(&memcache.Item{Key: "b", Value: []byte("two")}), nil, "Add")
	is(c.Replace(&memcache.Item{Key: "none", Value: []byte("x")}), memcache.ErrNotStored, "Replace of nothing")
	is(c.Replace(&memcache.Item{Key: "b", Value: []byte("three")}), nil, "Replace")
	is(c.Append(&memcache.Item{Key: "b", Value: []byte("!")}), nil, "Append")
	is(c.Prepend(&memcache.Item{Key: "b", Value: []byte("?")}), nil, "Prepend")
	is(c.Append(&memcache.Item{Key: "none", Value: []byte("!")}), memcache.ErrNotStored, "Append to nothing")
	items, err := c.GetMulti([]string{"a", "b", "none"})
	is(err, nil, "GetMulti")
	same(len(items), 2, "GetMulti's items")
	same(string(items["b"].Value), "?three!", "GetMulti's value")

	item, err = c.Get("a")
	is(err, nil, "Get for cas")
	item.Value = []byte("swapped")
	is(c.CompareAndSwap(item), nil, "CompareAndSwap")
	is(c.CompareAndSwap(item), memcache.ErrCASConflict, "CompareAndSwap with an old unique")
	is(c.Delete("a"), nil, "Delete")
	is(c.CompareAndSwap(item), memcache.ErrCacheMiss, "CompareAndSwap of nothing")
	is(c.Delete("a"), memcache.ErrCacheMiss, "Delete of nothing")

	is(c.Set(&memcache.Item{Key: "n", Value: []byte("10")}), nil, "Set a number")
	number, err := c.Increment("n", 5)
	is(err, nil, "Increment")
	same(number, uint64(15), "Increment's number")
	number, err = c.Decrement("n", 50)
	is(err, nil, "Decrement")
	same(number, uint64(0), "Decrement's number")
	_, err = c.Increment("none", 1)
	is(err, memcache.ErrCacheMiss, "Increment of nothing")
	_, err = c.Increment("b", 1)
	same(err != nil && bytes.Contains([]byte(err.Error()), []byte("non-numeric")), true, "Increment of text")

	is(c.Touch("b", 100), nil, "Touch")
	is(c.Touch("none", 100), memcache.ErrCacheMiss, "Touch of nothing")
	item, err = c.GetAndTouch("b", 200)
	is(err, nil, "GetAndTouch")
	same(string(item.Value), "?three!", "GetAndTouch's value")

	large := bytes.Repeat([]byte("0123456789abcdef"), 60_000)
	is(c.Set(&memcache.Item{Key: "large", Value: large}), nil, "a large value")
	item, err = c.Get("large")
	is(err, nil, "the large value")
	same(bytes.Equal(item.Value, large), true, "the large value's bytes")
	err = c.Set(&memcache.Item{Key: "large", Value: make([]byte, 2<<20)})
	same(err != nil, true, "a value of 2 MB")
	is(c.Set(&memcache.Item{Key: "b", Value: []byte("x")}), nil, "in step after a refusal")

	var keys []string
	for i := range make([]struct{}, 300) {
		key := fmt.Sprintf("m%d", i)
		keys = append(keys, key)
		is(c.Set(&memcache.Item{Key: key, Value: []byte(key)}), nil, "Set of many")
	}
	items, err = c.GetMulti(keys)
	is(err, nil, "GetMulti of 300")
	same(len(items), 300, "GetMulti of 300")
	is(c.DeleteAll(), nil, "DeleteAll")
	_, err = c.Get("b")
	is(err, memcache.ErrCacheMiss, "Get after DeleteAll")
	is(c.Close(), nil, "Close")
}
