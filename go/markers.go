package holdall

import (
	"context"
	"errors"
)

// putAttempts is how often a place is put into a marker that others change as well.
const putAttempts = 16

// placeMax is how long the text of a place may be. Behind a longer one, of many writes to MySQL,
// the marker is without a place.
const placeMax = 1000

// Source is the database that is to be read.
type Source string

// Local is the region's own database; Master is the one that takes writes.
const (
	Local  Source = "local"
	Master Source = "master"
)

// ReadFrom is the database that is to be read. With a place, the source is Local: read there if it
// has reached the place (Position.ReachedQuery), and else from the master. Ask one replica for
// both, the place and the row.
type ReadFrom struct {
	Source Source
	Place  *Position
}

// Markers are the remote markers of a region whose database is a replica: keys that begin with
// Prefix, which the router sends to the region's pool.
type Markers struct {
	Prefix string
	// TTL is how many seconds a marker stands if nobody deletes it.
	TTL int64
}

// WriteMarked writes what key shows, in a region whose database is a replica: it sets the marker,
// calls write with the marker's key, which is to be invalidated with the write, and deletes key.
// The write goes on where the cache fails; the first error is write's.
func (c *Client) WriteMarked(ctx context.Context, key string, m Markers, write func(ctx context.Context, marker string) error) error {
	marker := m.Prefix + key
	if err := check(marker); err != nil {
		return err
	}
	_, unmarked := c.store(ctx, "set", marker, 0, m.item(nil))
	if err := write(ctx, marker); err != nil {
		return err
	}
	// What is committed is to be seen, though the caller may go away.
	ctx = context.WithoutCancel(ctx)
	return errors.Join(unmarked, c.Delete(ctx, key))
}

// WriteMarkedAt is WriteMarked with an exact marker: write also returns the place of its commit in
// the master's log. Nothing but time ends such markers, so what follows the replica's log deletes
// key alone, and readers use GetOrLoadAt.
func (c *Client) WriteMarkedAt(ctx context.Context, key string, m Markers, write func(ctx context.Context) (Position, error)) error {
	marker := m.Prefix + key
	if err := check(marker); err != nil {
		return err
	}
	// That it fails does not matter: the marker is written once more below, or that fails.
	_, _ = c.store(ctx, "set", marker, 0, m.item(nil))
	place, err := write(ctx)
	if err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx)
	unmarked := c.put(ctx, marker, m, place)
	return errors.Join(unmarked, c.Delete(ctx, key))
}

// put puts the place of a write into a marker, behind the place that it has.
func (c *Client) put(ctx context.Context, marker string, m Markers, own Position) error {
	for range putAttempts {
		there, err := c.pool.retrieve(ctx, "gets", marker)
		if err != nil {
			return err
		}
		command, place := "add", &own
		if there.found {
			command = "cas"
			// Without a place somebody's write is under way, or nobody's: ours says enough for us.
			if other, err := ParsePosition(string(there.value)); err == nil {
				place = own.behindBoth(other)
			}
		}
		isPut, err := c.store(ctx, command, marker, there.cas, m.item(place))
		if isPut || err != nil {
			return err
		}
	}
	_, err := c.store(ctx, "set", marker, 0, m.item(nil))
	return err
}

// item is a marker with a place or without.
func (m Markers) item(place *Position) item {
	if place != nil && place.kind != "" {
		if text := place.String(); len(text) <= placeMax {
			return item{exptime: m.TTL, value: []byte(text)}
		}
	}
	return item{flags: 2, exptime: m.TTL, value: []byte("1")}
}

// readFrom is the database that a marker names. One that cannot be looked up names the master.
func (c *Client) readFrom(ctx context.Context, marker string) ReadFrom {
	got, err := c.pool.retrieve(ctx, "get", marker)
	if err == nil && !got.found {
		return ReadFrom{Source: Local}
	}
	if place, none := ParsePosition(string(got.value)); err == nil && none == nil {
		return ReadFrom{Source: Local, Place: &place}
	}
	return ReadFrom{Source: Master}
}
