// Package state keeps the changes that operators have made to a running process in a file, so that they survive its
// restart.
package state

import (
	"fmt"
	"time"
)

// A Kind is the kind of thing that a [Change] changes.
type Kind string

// Kinds of changes. Other kinds, which another version has written, are kept in the file.
const (
	EndpointAdded   Kind = "endpoint added"
	EndpointRemoved Kind = "endpoint removed"
	EndpointState   Kind = "endpoint state" // Value is ready, drain or maint
	EndpointWeight  Kind = "endpoint weight"
	ListenerDrained Kind = "listener drained"
	Split           Kind = "split" // Value has the percentages by upstream: shop:95,next:5
)

// A Change is a change by hand that is in force. It is about a line of the configuration, and ends when that line changes.
type Change struct {
	Kind     Kind   `json:"kind"`
	Upstream string `json:"upstream,omitempty"`
	Endpoint string `json:"endpoint,omitempty"` // its name or, without one, its address
	Listener string `json:"listener,omitempty"`
	Route    int    `json:"route,omitempty"` // the route of a split, counted from 0
	Match    string `json:"match,omitempty"` // the clients of that route; empty: unknown
	// Value is the value in force.
	Value string `json:"value,omitempty"`
	// Added is the endpoint that EndpointAdded has added.
	Added *Endpoint `json:"added,omitempty"`
	// Line is the text of the line that the change is about; empty: there is none.
	Line  string    `json:"line,omitempty"`
	By    string    `json:"by"`
	Since time.Time `json:"since"`
}

// An Endpoint is an endpoint that was added by hand.
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

// A Key identifies the thing that a change is about. There is at most one change for a key.
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
