// Package generation keeps what a process runs under, and what it ran under before, so
// that a change made from afar can be taken back: by somebody, or by itself when nobody
// confirms it or a counter rises too far.
package generation

import (
	"errors"
	"time"
)

var (
	// ErrPending is wrapped by the error of a change that is refused because the one
	// before waits to be confirmed. It is refused and does not replace that one: who
	// waits to confirm a change must not find that he has confirmed another.
	ErrPending = errors.New("a reload waits to be confirmed")
	// ErrNothing is wrapped by the errors of [Keeper.Confirm] and [Keeper.Rollback] if
	// there is nothing to confirm or to return to.
	ErrNothing = errors.New("nothing")
	// ErrLate is wrapped by the error of [Keeper.Confirm] if the change must not stay any
	// more, and was taken back, or is not the one in force.
	ErrLate = errors.New("too late")
	// ErrOptions is wrapped by the error of [Keeper.Apply] for options that cannot be
	// meant. Such an error is one line that says what to write instead.
	ErrOptions = errors.New("invalid option")
	// ErrClosed is the error of a [Keeper] that was closed.
	ErrClosed = errors.New("the process is ending")
)

// Options say under which conditions a change stays.
type Options struct {
	// Confirm is for how long a change waits to be confirmed: when nobody has by then it
	// is taken back. 0 means that it needs no confirmation.
	Confirm time.Duration
	// RollbackIf takes the change back as soon as it holds while the change waits to be
	// confirmed, and needs Confirm: see [ParseBound]. "" means never.
	RollbackIf string
	// By says who asked for the change: "SIGHUP", "reload", ... It is only told.
	By string
}

// State is what has become of a generation.
type State string

// The states of generations.
const (
	Current    State = "current"     // in force
	Pending    State = "pending"     // in force, and waits to be confirmed
	Previous   State = "previous"    // a rollback returns to it
	Replaced   State = "replaced"    // it is not kept any more
	RolledBack State = "rolled back" // it was taken back
)

// A Record tells of a generation.
type Record struct {
	Generation int       `json:"generation"`
	State      State     `json:"state"`
	At         time.Time `json:"at"`            // when it came into force first
	By         string    `json:"by,omitempty"`  // who asked for it
	Why        string    `json:"why,omitempty"` // it was taken back, or could not be
}

// Waiting tells of a change that waits to be confirmed.
type Waiting struct {
	Generation int       `json:"generation"`
	Until      time.Time `json:"until"`                 // it is taken back then
	RollbackIf string    `json:"rollback_if,omitempty"` // the bound
	Increase   int64     `json:"increase"`              // of the bound's counter until now
}

// Status is what a [Keeper] keeps. Its JSON form is part of the interface of the program.
type Status struct {
	Current  int      `json:"current"`           // the number of the generation in force, from 1
	Previous int      `json:"previous"`          // that to which a rollback returns; 0: none
	Pending  *Waiting `json:"pending,omitempty"` // nil: none
	History  []Record `json:"history"`           // the last ones, the newest first
}

// An Event is what has happened to a generation.
type Event string

// The events.
const (
	Applied        Event = "applied"
	Confirmed      Event = "confirmed"
	TakenBack      Event = "rolled back"
	RollbackFailed Event = "rollback failed"
)

// A Change is what a [Keeper] tells of.
type Change struct {
	Event      Event
	Generation int    // the one that the event is about
	Now        int    // the one in force afterwards
	By, Why    string // who asked for it, and why it was taken back; "" if there is nothing to say
	Err        error  // of RollbackFailed
	Pending    *Waiting
}
