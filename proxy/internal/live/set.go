// Package live decides about changes by hand: which of them are in force, on which line of the
// configuration each stands, and which of them a configuration ends.
package live

import (
	"slices"

	"github.com/penstock/penstock/proxy/internal/state"
)

// A Set is the changes that are in force, in the order in which they were made. It does not change. The
// zero value is empty.
type Set struct{ list []state.Change }

// NewSet returns a set of changes.
func NewSet(list []state.Change) Set { return Set{slices.Clone(list)} }

// All returns the changes. The caller does not change them.
func (s Set) All() []state.Change { return s.list }

// Find returns the change of a key; nil: there is none.
func (s Set) Find(key state.Key) *state.Change {
	for i := range s.list {
		if s.list[i].Key() == key {
			return &s.list[i]
		}
	}
	return nil
}

// With returns the set with a change, in place of the one of its key.
func (s Set) With(c state.Change) Set {
	return Set{append(s.Without(c.Key()).list, c)}
}

// Without returns the set without the changes of keys.
func (s Set) Without(keys ...state.Key) Set {
	return s.filter(func(c *state.Change) bool { return !slices.Contains(keys, c.Key()) })
}

// WithoutEndpoint returns the set without the changes of an endpoint.
func (s Set) WithoutEndpoint(upstream, endpoint string) Set {
	return s.filter(func(c *state.Change) bool { return c.Upstream != upstream || c.Endpoint != endpoint })
}

func (s Set) filter(keep func(*state.Change) bool) (left Set) {
	for i := range s.list {
		if keep(&s.list[i]) {
			left.list = append(left.list, s.list[i])
		}
	}
	return left
}

// Of returns the changes of an upstream's endpoints; nil: there are none.
func (s Set) Of(upstream string) *Upstream {
	var u *Upstream
	for i := range s.list {
		c := &s.list[i]
		if c.Upstream != upstream || c.Endpoint == "" {
			continue
		}
		if u == nil {
			u = &Upstream{by: make(map[state.Key]*state.Change)}
		}
		u.by[state.Key{Kind: c.Kind, Endpoint: c.Endpoint}] = c
		if c.Kind == state.EndpointAdded {
			u.added = append(u.added, c)
		}
	}
	return u
}

// An Upstream is the changes of the endpoints of an upstream. Nil has none.
type Upstream struct {
	by    map[state.Key]*state.Change
	added []*state.Change
}

// Find returns the change of a kind; nil: there is none.
func (u *Upstream) Find(kind state.Kind, endpoint string) *state.Change {
	if u == nil {
		return nil
	}
	return u.by[state.Key{Kind: kind, Endpoint: endpoint}]
}

// Added returns the endpoints that were added.
func (u *Upstream) Added() []*state.Change {
	if u == nil {
		return nil
	}
	return u.added
}
