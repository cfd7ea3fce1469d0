// Package rollback keeps the configuration of a process and the ones before it, so that a
// remote change can be rolled back: by a command, or automatically when it is not confirmed or
// a counter rises too far.
package rollback

import (
	"errors"
	"time"
)

var (
	// ErrPending is wrapped by the error of a change that is refused because the one before
	// waits to be confirmed. It does not replace that one: otherwise a confirmation could be
	// applied to another change than the intended one.
	ErrPending = errors.New("waits to be confirmed")
	// ErrNothing is wrapped by the errors of [Keeper.Confirm] and [Keeper.Rollback] if
	// there is nothing to confirm or to return to.
	ErrNothing = errors.New("nothing")
	// ErrLate is wrapped by the error of [Keeper.Confirm] if the change must not stay any
	// more, and was taken back, or is not the one in force.
	ErrLate = errors.New("too late")
	// ErrOptions is wrapped by the error of [Keeper.Apply] for invalid options. Such an error
	// is one line with a correction.
	ErrOptions = errors.New("invalid option")
	// ErrClosed is the error of a [Keeper] that was closed.
	ErrClosed = errors.New("the process is ending")
)

// Options say under which conditions a change stays.
type Options struct {
	// Confirm is the time for which a change waits to be confirmed; if it is not, it is rolled
	// back. 0 means that it needs no confirmation.
	Confirm time.Duration
	// RollbackIf takes the change back as soon as it holds while the change waits to be
	// confirmed, and needs Confirm: see [ParseBound]. "" means never.
	RollbackIf string
	// By is the origin of the change: "SIGHUP", "reload", ... It is only reported.
	By string
}

// State is the state of a generation.
type State string

// The states of generations.
const (
	Current    State = "current"     // in force
	Pending    State = "pending"     // in force, and waits to be confirmed
	Previous   State = "previous"    // a rollback returns to it
	Replaced   State = "replaced"    // it was in force before; a rollback to its number returns to it
	RolledBack State = "rolled back" // it was taken back; a rollback to its number brings it back
)

// Itself is the author of automatic rollbacks, in [Change] and in logs.
const Itself = "itself"

// A Record describes a generation.
type Record struct {
	Generation int       `json:"generation"`    // its number, from 1
	State      State     `json:"state"`         // its state
	At         time.Time `json:"at"`            // when it came into force first
	By         string    `json:"by,omitempty"`  // origin of the change
	Why        string    `json:"why,omitempty"` // it was taken back, or could not be
	// Changes are readable lines, one for each change from the generation before, or for the first 40.
	Changes []string `json:"changes"`
}

// Waiting describes a change that waits to be confirmed.
type Waiting struct {
	Generation int       `json:"generation"`            // that waits
	Until      time.Time `json:"until"`                 // it is taken back then
	RollbackIf string    `json:"rollback_if,omitempty"` // the bound
	Increase   int64     `json:"increase"`              // by which the counter of RollbackIf has risen until now
}

// Status is the state of a [Keeper]. Its JSON form is part of the interface of the program.
type Status struct {
	Current  int       `json:"current"`           // the number of the generation in force, from 1
	Since    time.Time `json:"since"`             // when that came into force: by the last reload, or the last rollback
	Previous int       `json:"previous"`          // that to which a rollback returns; 0: none
	Pending  *Waiting  `json:"pending,omitempty"` // nil: none
	History  []Record  `json:"history"`           // those that are kept, the newest first
}

// An Event is a change of a generation's state.
type Event string

// The events.
const (
	Applied        Event = "applied"
	Unchanged      Event = "unchanged" // what was applied equals the state in force
	Confirmed      Event = "confirmed"
	TakenBack      Event = "rolled back"
	RollbackFailed Event = "rollback failed"
)

// A Change is a report of a [Keeper].
type Change struct {
	Event      Event
	Generation int    // the one that the event is about
	Now        int    // the one in force afterwards
	By, Why    string // origin of the change, and the reason of a rollback; "" if there is none
	Err        error  // of RollbackFailed
	Pending    *Waiting
}
