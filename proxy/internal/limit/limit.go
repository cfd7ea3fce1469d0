// Package limit admits clients. It limits the connections at once and per second, of all clients and of each source,
// and checks access rules.
//
// Event loops ask it about every accepted client. So no call waits, and none allocates once the tables have the size
// that the load needs. Times are nanoseconds of a monotonic clock; all calls on a value must use the same clock.
// Everything is safe for concurrent use by several loops.
package limit

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/penstock/penstock/proxy/internal/source"
)

// ErrDenied means that the source is on the deny list, or that there is an allow list without it.
var ErrDenied = fmt.Errorf("%w by the configuration", source.ErrDenied)

// An Access holds the rules for sources. The zero value allows every client with a known source.
type Access struct {
	Allow *source.Set // empty: every known source
	Deny  *source.Set // wins over Allow
}

// Limits reports whether any client with a known source is denied.
func (a *Access) Limits() bool { return a.Allow.Len() > 0 || a.Deny.Len() > 0 }

// Check returns nil, [ErrDenied], or [source.ErrUnknown] for an unknown source.
func (a *Access) Check(src source.Source) error {
	switch {
	case !src.Known():
		return source.ErrUnknown
	case a.Deny.Contains(src), a.Allow.Len() > 0 && !a.Allow.Contains(src):
		return ErrDenied
	}
	return nil
}

// ErrDeniedNow means that an operator denied the source, at run time and not in the configuration.
var ErrDeniedNow = fmt.Errorf("%w by an operator", source.ErrDenied)

// A Denial denies sources, at one listener or at all listeners.
type Denial struct {
	Source   source.Rule
	Listener string // empty: all
}

// Denials are denials that change while clients come. The zero value and nil deny nobody. It is safe for concurrent
// use.
type Denials struct{ current atomic.Pointer[denialSets] }

// denialSets are the denials of one time. They do not change.
type denialSets struct {
	everywhere *source.Set
	at         map[string]*source.Set // by listener
}

// Set replaces all denials.
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

// Any reports whether there are denials. Without denials a client need not be asked for its source.
func (d *Denials) Any() bool { return d != nil && d.current.Load() != nil }

// Check returns nil or [ErrDeniedNow]. It returns [source.ErrUnknown] for an unknown source if there are any denials.
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

// ErrConnections means that the connection limit is reached.
var ErrConnections = errors.New("connection limit reached")

// Connections counts connections, up to a limit. The zero value counts without a limit.
type Connections struct {
	most  atomic.Int64
	inUse atomic.Int64
}

// Set changes the limit; 0 or less means no limit. Connections beyond a lower limit stay.
func (c *Connections) Set(limit int64) { c.most.Store(max(limit, 0)) }

// Take takes a place for a connection, and reports whether there was one. The caller gives the place back by Give.
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

// Add takes a place even if the limit is reached. It is for callers that ask Full before they accept, and lose the
// last place to another loop in between.
func (c *Connections) Add() { c.inUse.Add(1) }

// Give gives a place back. freed means that Take would have failed before and succeeds now: wake a client that waits
// for a place.
func (c *Connections) Give() (freed bool) {
	n, most := c.inUse.Add(-1), c.most.Load()
	return most > 0 && n+1 == most
}

// Full reports whether Take would fail now.
func (c *Connections) Full() bool {
	most := c.most.Load()
	return most > 0 && c.inUse.Load() >= most
}

// InUse returns the number of taken places.
func (c *Connections) InUse() int64 { return c.inUse.Load() }

// Max returns the limit, or 0 without a limit.
func (c *Connections) Max() int64 { return c.most.Load() }
