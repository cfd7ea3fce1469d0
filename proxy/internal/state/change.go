// Package state keeps in a file the changes that operators have made to a running process, so that
// they survive its restart.
package state

import (
	"fmt"
	"time"
)

// A Kind is the kind of thing that a [Change] changes.
type Kind string

// Kinds of changes. A file may have others, of another version, which are kept.
const (
	EndpointAdded   Kind = "endpoint added"
	EndpointRemoved Kind = "endpoint removed"
	EndpointState   Kind = "endpoint state" // Value is ready, drain or maint
	EndpointWeight  Kind = "endpoint weight"
	ListenerDrained Kind = "listener drained"
	Split           Kind = "split" // Value has the percentages by upstream: shop:95,next:5
)

// A Change is a change by hand that is in force. It stands on a line of the configuration, and ends when that
// line changes.
type Change struct {
	Kind     Kind   `json:"kind"`
	Upstream string `json:"upstream,omitempty"`
	Endpoint string `json:"endpoint,omitempty"` // its name, or its address without one
	Listener string `json:"listener,omitempty"`
	Route    int    `json:"route,omitempty"` // of a split, counted from 0
	// Value is the value in force.
	Value string `json:"value,omitempty"`
	// Added is the endpoint of EndpointAdded.
	Added *Endpoint `json:"added,omitempty"`
	// Line is the text of the line that the change stands on; empty: there is none.
	Line  string    `json:"line,omitempty"`
	By    string    `json:"by"`
	Since time.Time `json:"since"`
}

// An Endpoint is an endpoint that is in no file.
type Endpoint struct {
	Address     string `json:"address"`
	Name        string `json:"name,omitempty"`
	Zone        string `json:"zone,omitempty"`
	Weight      int    `json:"weight"`
	Backup      bool   `json:"backup,omitempty"`
	Connections int64  `json:"connections,omitempty"`
}

// A Denial refuses the clients of a source.
type Denial struct {
	Source   string    `json:"source"`             // an address or a prefix
	Listener string    `json:"listener,omitempty"` // empty: all
	Until    time.Time `json:"until"`
	By       string    `json:"by"`
	Since    time.Time `json:"since"`
}

// A Key identifies the thing that a change is about. There is one change of a key at most.
type Key struct {
	Kind                         Kind
	Upstream, Endpoint, Listener string
	Route                        int
}

// Key returns the key of the change.
func (c *Change) Key() Key { return Key{c.Kind, c.Upstream, c.Endpoint, c.Listener, c.Route} }

// String returns the change in a line, without its author: endpoint web/a: weight 5.
func (c *Change) String() string {
	of := fmt.Sprintf("endpoint %s/%s", c.Upstream, c.Endpoint)
	switch c.Kind {
	case EndpointAdded:
		return of + ": added"
	case EndpointRemoved:
		return of + ": removed"
	case EndpointState:
		return of + ": " + c.Value
	case EndpointWeight:
		return of + ": weight " + c.Value
	case ListenerDrained:
		return fmt.Sprintf("listener %s: drained", c.Listener)
	case Split:
		return fmt.Sprintf("listener %s, route %d: split %s", c.Listener, c.Route, c.Value)
	}
	return string(c.Kind)
}
