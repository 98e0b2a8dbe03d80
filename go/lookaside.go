package holdall

import (
	"context"
	"errors"
	"math"
	"math/rand"
	"time"
)

// Options say how a value is read. The zero value is usual, and keeps values for ever.
type Options struct {
	// Exptime is the expiry time of what is stored, as memcached takes it: 0 is never, up to 30
	// days are seconds, more is Unix time.
	Exptime int64
	// RefuseStale refuses what may be older than a delete: a value that was deleted a short time
	// ago while another fills, and what another goroutine began to load before the delete.
	RefuseStale bool
	// WaitFirst and WaitLongest are the first and the longest pause between two questions while
	// another process loads; 0 is 2 ms and 500 ms.
	WaitFirst, WaitLongest time.Duration
	// WaitTotal is how long another process's load is waited for. After that the value is loaded
	// in spite of it, and not stored. 0 is 15 s, longer than a lease lives.
	WaitTotal time.Duration
	// EarlyRefresh has one reader load a value anew shortly before it expires: sooner the longer
	// loads take. 1 is usual, 0 is off.
	EarlyRefresh float64
}

// fill is what may be done with a value that was loaded.
type fill struct {
	// command is "add", "lease-set", "cas" or, for nothing, "".
	command string
	number  uint64
	// old is the value that a refresh replaces.
	old []byte
}

// reader is one call, until it has the value or loads it.
type reader struct {
	c      *Client
	key    string
	o      Options
	begun  time.Time
	wait   time.Duration
	leader *flight
	// loads: this call has come to its loader.
	loads bool
}

// GetOrLoad returns the value of a key, from the cache or else from load, which is called once at
// the most. The error is load's, the context's, or ErrKey; that the cache fails is none.
//
// One caller of all processes loads a missing key. If load fails, panics or its context is done,
// another caller loads at once; GetOrLoad itself returns when load does, so load is to look at its
// context. Goroutines of one client share one load and its error, so load must not ask for the same
// key. A value that a delete has overtaken is not stored.
func (c *Client) GetOrLoad(ctx context.Context, key string, o Options, load func(context.Context) ([]byte, error)) ([]byte, error) {
	return c.read(ctx, key, o, nil, func(ctx context.Context, _ ReadFrom) ([]byte, error) { return load(ctx) })
}

// GetOrLoadFrom is GetOrLoad in a region whose database is a replica: load receives the database
// to ask.
func (c *Client) GetOrLoadFrom(ctx context.Context, key string, o Options, m Markers, load func(context.Context, Source) ([]byte, error)) ([]byte, error) {
	return c.read(ctx, key, o, &m, func(ctx context.Context, from ReadFrom) ([]byte, error) {
		if from.Place != nil {
			from.Source = Master
		}
		return load(ctx, from.Source)
	})
}

// GetOrLoadAt is GetOrLoadFrom where writers use WriteMarkedAt: load receives the place that the
// region's own database must have reached to be read.
func (c *Client) GetOrLoadAt(ctx context.Context, key string, o Options, m Markers, load func(context.Context, ReadFrom) ([]byte, error)) ([]byte, error) {
	return c.read(ctx, key, o, &m, load)
}

func (c *Client) read(ctx context.Context, key string, o Options, m *Markers, load func(context.Context, ReadFrom) ([]byte, error)) ([]byte, error) {
	if err := check(key); err != nil {
		return nil, err
	}
	r := &reader{c: c, key: key, o: defaults(o), begun: time.Now()}
	r.wait = r.o.WaitFirst
	value, f, err := r.next(ctx)
	if f == nil || err != nil {
		r.finish(flight{givenUp: true})
		return value, err
	}
	if r.leader != nil {
		r.loads = true
		r.c.flights.load(r.leader)
	}
	giveUp := func() {
		r.giveBack(f)
		r.finish(flight{givenUp: true})
	}
	// A load may go on though its context is done: the others do not wait for it.
	stop := context.AfterFunc(ctx, giveUp)
	isDone := false
	defer func() {
		if !isDone && stop() {
			// A panic of load.
			giveUp()
		}
	}()
	value, err = r.load(ctx, m, load)
	isDone = true
	if !stop() {
		// The call is given up already: another one may fill.
		return value, err
	}
	return r.end(ctx, f, value, err)
}

func defaults(o Options) Options {
	if o.WaitFirst <= 0 {
		o.WaitFirst = 2 * time.Millisecond
	}
	if o.WaitLongest <= 0 {
		o.WaitLongest = 500 * time.Millisecond
	}
	if o.WaitTotal <= 0 {
		o.WaitTotal = 15 * time.Second
	}
	return o
}

// next asks and waits until there is a value, or this call is to load and may fill.
func (r *reader) next(ctx context.Context) ([]byte, *fill, error) {
	for {
		got, refused, err := r.ask(ctx)
		var f *fill
		switch {
		case ctx.Err() != nil:
			if got.token > 1 {
				r.giveBack(&fill{command: "lease-set", number: got.token})
			}
			return nil, nil, ctx.Err()
		case err != nil:
			f = &fill{}
		case got.found && got.won:
			r.finish(flight{value: got.value, current: true})
			return nil, &fill{command: "cas", number: got.cas, old: got.value}, nil
		case got.found:
			r.finish(flight{value: got.value, current: true})
			return got.value, nil, nil
		case refused:
			f = &fill{command: "add"}
		case got.token > 1:
			if r.leader == nil {
				r.leader = r.c.flights.lead(r.key)
			}
			return nil, &fill{command: "lease-set", number: got.token}, nil
		case got.stale && !r.o.RefuseStale:
			r.finish(flight{value: got.value})
			return got.value, nil, nil
		case r.left() <= 0:
			return nil, &fill{}, nil
		}
		// What was begun before may be older than a delete, and nothing could tell.
		if err != nil && r.o.RefuseStale {
			return nil, f, nil
		}
		if r.leader == nil {
			present, isLeader := r.c.flights.join(r.key, nil)
			if !isLeader {
				value, isOver, err := r.follow(ctx, present)
				if isOver || err != nil {
					return value, nil, err
				}
				continue
			}
			r.leader = present
		}
		if f != nil {
			return nil, f, nil
		}
		value, isOver, err := r.pause(ctx)
		if isOver || err != nil {
			return value, nil, err
		}
	}
}

// ask asks the cache; refused tells that leases are not for this key. It is not given up on the
// way: the reply may be a lease.
func (r *reader) ask(ctx context.Context) (got reply, refused bool, err error) {
	ctx = context.WithoutCancel(ctx)
	if !r.c.isRefused(r.key) {
		if r.o.EarlyRefresh > 0 {
			mean := float64(r.c.meanLoad.Load()) / float64(time.Second)
			early := mean * r.o.EarlyRefresh * -math.Log(1-rand.Float64())
			secs := uint32(min(early+1, math.MaxUint32))
			got, err = r.c.pool.retrieveEarly(ctx, r.key, secs)
		} else {
			got, err = r.c.pool.retrieve(ctx, "lease-get", r.key)
		}
		if !errors.Is(err, errRefused) {
			return got, false, err
		}
		r.c.noteRefused(r.key)
	}
	got, err = r.c.pool.retrieve(ctx, "get", r.key)
	return got, true, err
}

// pause waits a moment before the cache is asked again. Another goroutine may have the lease: it
// tells whether its outcome is this call's as well.
func (r *reader) pause(ctx context.Context) ([]byte, bool, error) {
	timer := time.NewTimer(min(r.wait, r.left()))
	defer timer.Stop()
	r.wait = min(r.wait*2, r.o.WaitLongest)
	own := r.leader
	select {
	case <-ctx.Done():
		return nil, false, ctx.Err()
	case <-own.done:
		r.finish(flight{givenUp: true})
		return r.shared(own)
	case <-timer.C:
		return nil, false, nil
	}
}

// follow waits for another goroutine's outcome, and tells whether it is this call's as well.
// Whoever has waited as long as one may for the same flight begins the next: its leader may be
// stuck.
func (r *reader) follow(ctx context.Context, present *flight) ([]byte, bool, error) {
	for {
		late := time.NewTimer(r.o.WaitTotal)
		select {
		case <-ctx.Done():
			late.Stop()
			return nil, false, ctx.Err()
		case <-present.done:
			late.Stop()
			return r.shared(present)
		case <-late.C:
			next, isLeader := r.c.flights.join(r.key, present)
			if isLeader {
				r.leader = next
				return nil, false, nil
			}
			present = next
		}
	}
}

// shared is what the outcome of a flight is for this call, and whether it is one.
func (r *reader) shared(ended *flight) ([]byte, bool, error) {
	if ended.givenUp || ended.err == nil && !ended.current && r.o.RefuseStale {
		return nil, false, nil
	}
	return clone(ended.value), true, ended.err
}

// load calls the loader.
func (r *reader) load(ctx context.Context, m *Markers, load func(context.Context, ReadFrom) ([]byte, error)) ([]byte, error) {
	from := ReadFrom{Source: Local}
	if m != nil {
		// Behind the token: a write in between takes the token away.
		from = r.c.readFrom(ctx, m.Prefix+r.key)
	}
	begun := time.Now()
	value, err := load(ctx, from)
	r.c.note(time.Since(begun))
	if err != nil {
		return nil, err
	}
	return value, nil
}

// end stores a value that was loaded, and gives it or the loader's error to those who wait.
func (r *reader) end(ctx context.Context, f *fill, value []byte, err error) ([]byte, error) {
	if err != nil {
		r.giveBack(f)
		// That this caller goes away is no outcome for the others.
		r.finish(flight{err: err, givenUp: ctx.Err() != nil})
		if f.command == "cas" && ctx.Err() == nil {
			return f.old, nil
		}
		return nil, err
	}
	isStored := false
	if f.command != "" {
		// The value is there: that the caller goes away now keeps nobody from having it.
		isStored, err = r.c.store(context.WithoutCancel(ctx), f.command, r.key, f.number, item{exptime: r.o.Exptime, value: value})
		if err != nil {
			r.giveBack(f)
		}
	}
	r.finish(flight{value: clone(value), current: isStored && f.command == "lease-set"})
	return value, nil
}

// giveBack gives a lease back, so that the next reader gets one at once.
func (r *reader) giveBack(f *fill) {
	if f.command == "lease-set" {
		// If it does not arrive, the lease ends by its own time.
		_, _ = r.c.store(context.Background(), "lease-set", r.key, f.number, item{exptime: -1})
	}
}

// finish ends the flight that this call leads, if it does.
func (r *reader) finish(outcome flight) {
	if r.leader != nil {
		r.c.flights.finish(r.key, r.leader, r.loads, outcome)
		r.leader = nil
	}
}

func (r *reader) left() time.Duration {
	return r.o.WaitTotal - time.Since(r.begun)
}

// note takes a load into the mean: each counts for an eighth.
func (c *Client) note(took time.Duration) {
	mean := c.meanLoad.Load()
	if mean == 0 {
		mean = int64(took)
	}
	c.meanLoad.Store(mean + (int64(took)-mean)/8)
}

func clone(value []byte) []byte {
	if value == nil {
		return nil
	}
	return append([]byte{}, value...)
}
