// Package limit admits clients: so many connections at once and so many a second, of all
// clients and of each source, and from allowed addresses.
//
// Everything here is asked on event loops for each client that is accepted: nothing waits, and
// nothing allocates once the tables have the size that the load needs. Times are nanoseconds
// of one monotonic clock, the same for all calls of a value; everything is safe for concurrent
// use by several loops.
package limit

import (
	"errors"
	"sync/atomic"

	"github.com/penstock/penstock/proxy/internal/source"
)

// ErrDenied means that the source is on the list of denied ones, or not on that of allowed
// ones.
var ErrDenied = errors.New("source not allowed")

// An Access is the rules for sources. The zero value allows every client with a known source.
type Access struct {
	Allow *source.Set // empty: every known source
	Deny  *source.Set // wins over Allow
}

// Limits reports whether it denies any client with a known source.
func (a *Access) Limits() bool { return a.Allow.Len() > 0 || a.Deny.Len() > 0 }

// Check returns nil, or [ErrDenied]; of a source that is not known [source.ErrUnknown].
func (a *Access) Check(src source.Source) error {
	switch {
	case !src.Known():
		return source.ErrUnknown
	case a.Deny.Contains(src), a.Allow.Len() > 0 && !a.Allow.Contains(src):
		return ErrDenied
	}
	return nil
}

// ErrDeniedNow means that the source is denied by an operator, beside the rules of the configuration.
var ErrDeniedNow = errors.New("source denied by an operator")

// A Denial denies sources, at one listener or at all.
type Denial struct {
	Source   source.Rule
	Listener string // empty: all
}

// Denials are denials that change while clients come. The zero value denies none; so does nil. It is
// safe for concurrent use.
type Denials struct{ current atomic.Pointer[denialSets] }

// denialSets do not change.
type denialSets struct {
	everywhere *source.Set
	at         map[string]*source.Set // by listener
}

// Set replaces all of them.
func (d *Denials) Set(list []Denial) {
	if len(list) == 0 {
		d.current.Store(nil)
		return
	}
	rules := make(map[string][]source.Rule)
	for _, one := range list {
		rules[one.Listener] = append(rules[one.Listener], one.Source)
	}
	sets := &denialSets{everywhere: source.NewSet(rules[""]), at: make(map[string]*source.Set)}
	for name, of := range rules {
		if name != "" {
			sets.at[name] = source.NewSet(of)
		}
	}
	d.current.Store(sets)
}

// Any reports whether there are any. If there are none a client need not be asked for its source.
func (d *Denials) Any() bool { return d != nil && d.current.Load() != nil }

// Check returns nil, or [ErrDeniedNow]; of a source that is not known [source.ErrUnknown], if there are
// any denials.
func (d *Denials) Check(listener string, src source.Source) error {
	if d == nil {
		return nil
	}
	sets := d.current.Load()
	switch {
	case sets == nil:
		return nil
	case !src.Known():
		return source.ErrUnknown
	case sets.everywhere.Contains(src), sets.at[listener].Contains(src):
		return ErrDeniedNow
	}
	return nil
}

// ErrConnections says that there are as many connections as may be.
var ErrConnections = errors.New("connection limit reached")

// Connections is how many there may be at once. The zero value limits nothing, and
// counts.
type Connections struct {
	most  atomic.Int64
	inUse atomic.Int64
}

// Set changes the limit; 0 or less means none. Connections beyond a lower one stay.
func (c *Connections) Set(limit int64) { c.most.Store(max(limit, 0)) }

// Take takes a place for a connection, and reports whether there was one. The caller gives it
// back by Give.
func (c *Connections) Take() bool {
	for {
		n, most := c.inUse.Load(), c.most.Load()
		if most > 0 && n >= most {
			return false
		}
		if c.inUse.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// Add takes a place whether or not there is one. It is for callers that ask Full before they
// accept, and then have a connection although another one was faster.
func (c *Connections) Add() { c.inUse.Add(1) }

// Give gives a place back, and reports whether Take would fail until then and would not now,
// so that a client that waits for a place should be woken.
func (c *Connections) Give() (freed bool) {
	n, most := c.inUse.Add(-1), c.most.Load()
	return most > 0 && n+1 == most
}

// Full reports whether Take would fail now.
func (c *Connections) Full() bool {
	most := c.most.Load()
	return most > 0 && c.inUse.Load() >= most
}

// InUse returns how many places are taken, and Most how many there are, 0 if there is
// no limit.
func (c *Connections) InUse() int64 { return c.inUse.Load() }

// Max returns the limit, 0 if there is none.
func (c *Connections) Max() int64 { return c.most.Load() }
