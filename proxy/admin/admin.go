// Package admin is the admin API of a running load balancer, and the client that the program's
// commands use. It is HTTP with JSON on a unix socket, where the user and the groups of a client decide what
// it may do, or on TCP with tokens or certificates.
package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/penstock/penstock/proxy/display"
	"github.com/penstock/penstock/proxy/rollback"
)

// Errors of a [Balancer] and a [Reloader]. Errors that wrap them are one line.
var (
	// ErrNotFound is wrapped for an unknown name (404).
	ErrNotFound = errors.New("not found")
	// ErrInvalid is wrapped for an invalid request (400).
	ErrInvalid = errors.New("invalid")
	// ErrForbidden is wrapped for a request that this client may not make (403).
	ErrForbidden = errors.New("not allowed")
)

// A Balancer is a running load balancer that reports its status and can be changed. Its
// methods are safe for concurrent use and return at once, without waiting for the end of a
// drain. The last argument of a method that changes something is the author of the change, for logs.
//
// Changes stay until a reload changes the same line of the file.
type Balancer interface {
	// Status returns the current status. It leaves empty Problems, Generation, Pending,
	// Started, PID and Version, which the [Server] fills in.
	Status() Status
	// Sessions returns the clients that are served and that q selects. The list ends when ctx does, or the
	// balancer. An error wraps [ErrInvalid], or [ErrNotFound] for a name that no client can have.
	Sessions(ctx context.Context, q SessionQuery, o SessionOrder) (SessionList, error)
	// EndSessions ends sessions; by says who asks. It returns when the last has ended, but at the
	// latest after [EndWait] or when ctx ends, and goes on ending them then. For q.DryRun it only
	// counts them. Its errors are as for Sessions.
	EndSessions(ctx context.Context, q EndQuery, by string) (Ended, error)
	// StopEnding calls off the ends that are under way.
	StopEnding(by string) Stopped
	// Sources returns the sources with the most of something.
	Sources(ctx context.Context, q SourceQuery) (Sources, error)
	MirrorReporter
	LaneSwitcher
	// Deny denies a source for a time, at a listener or, if that is empty, everywhere. If the source
	// is denied there already, the new end replaces the old. Its sessions go on. Undeny takes that
	// back; its error may wrap [ErrNotFound]. Denied returns the denials in force.
	Deny(source, listener string, within time.Duration, by string) (NewDenial, error)
	Undeny(source, listener, by string) error
	Denied() []Denial
	// Why looks at joined sessions that match, twice if q.For is not 0, and returns what limits them.
	Why(ctx context.Context, q WhyQuery) (Why, error)
	// DrainListener makes a listener stop accepting clients. Its sessions have their time to drain. Nothing is changed if
	// the listener was drained before. The next two report false if nothing was changed.
	DrainListener(name, by string) (ListenerDrained, error)
	// ChangeEndpoint changes an endpoint without the file. Its errors wrap [ErrNotFound] or [ErrInvalid].
	ChangeEndpoint(c *EndpointChange, by string) (EndpointChanged, error)
	// ReadyListener makes a drained listener accept clients again. If its address is no longer
	// available, it stays drained.
	ReadyListener(ctx context.Context, name, by string) (changed bool, err error)
	// SetSplit changes the percentages of a split, by the names of its upstreams. The names
	// must be those upstreams that the split has, and the percentages must add up to 100.
	// The route is counted from 0.
	SetSplit(listener string, route int, percent map[string]float64, by string) (changed bool, err error)
}

// A Reloader changes the running configuration.
type Reloader interface {
	// Reload reads the configuration again and applies it. The error may be a [*ConfigError],
	// or wrap the error of [rollback.Keeper.Apply].
	Reload(ctx context.Context, o rollback.Options) (Reloaded, error)
	// Confirm and Rollback are based on [rollback.Keeper]'s.
	Confirm(ctx context.Context, number int, by string) (generation int, err error)
	Rollback(ctx context.Context, to int, by string) (RolledBack, error)
	// Generations returns the generations that are kept.
	Generations() rollback.Status
	// Plan returns the changes that a reload from a file would make, and changes nothing. An
	// empty path is the file in force; its error may be a [*ConfigError]. Another file is
	// read only if trusted is true; otherwise the error wraps [ErrForbidden]. If that file
	// cannot be used, the error does not say why. The files that the process may read, and
	// its environment, are not for every client.
	Plan(ctx context.Context, path string, trusted bool) (Plan, error)
}

// Reloaded is the result of a reload.
type Reloaded struct {
	Generation int               `json:"generation"`        // in force now
	Changes    []string          `json:"changes"`           // readable lines; empty: there are none, and the generation is the same as before
	Pending    *rollback.Waiting `json:"pending,omitempty"` // nil: it needs no confirmation
	// Ended are the changes by hand that ended with it, with the reasons. A rollback restores them.
	Ended []LiveChange `json:"ended"`
}

// A Plan is the set of changes that a reload would make.
type Plan struct {
	Path        string          `json:"path"`        // of the file in force, absolute
	Generation  int             `json:"generation"`  // in force
	Connections int64           `json:"connections"` // current number
	Changes     []PlannedChange `json:"changes"`     // empty: no change
	// Live are the changes by hand; if the reload would end a change, it has the reason.
	Live []LiveChange `json:"live"`
}

// PlannedChange is one change of a plan.
type PlannedChange struct {
	What        string      `json:"what"`                  // a readable line
	Connections int64       `json:"connections,omitempty"` // live connections affected
	Disposition Disposition `json:"fate,omitempty"`        // of these connections
	// ResetAfterUs is how long connections that drain may last.
	ResetAfterUs int64 `json:"reset_after_us,omitempty"`
	// Leaves are the addresses at which a listener will no longer listen. If there are any,
	// Connections counts the connections accepted there, and Kept the listener's others.
	Leaves []Bind `json:"leaves,omitempty"`
	Kept   int64  `json:"kept,omitempty"`
	// LaneReturned counts the listener's connections that are in the lane now and will come back,
	// because the change keeps the listener's sessions in user space. The other counts do not
	// include them.
	LaneReturned int64 `json:"lane_returned,omitempty"`
	// Draining counts the listener's connections that go on draining, because they came at an address
	// that it had given up before, or before it was drained. The other counts do not include them.
	Draining int64 `json:"draining,omitempty"`
	// DrainingUs is the time within which they are reset.
	DrainingUs int64 `json:"draining_us,omitempty"`
}

// A Disposition is the treatment of the connections that a change affects.
type Disposition string

// The dispositions.
const (
	Keep  Disposition = "keep"  // they are not affected
	Drain Disposition = "drain" // they may last for a time, and are reset then
	Reset Disposition = "reset" // they end at once
	// Depends means that a connection is kept if the next source of endpoints lists its endpoint, and is drained or
	// reset otherwise.
	Depends Disposition = "depends"
)

// A ConfigError reports a configuration that cannot be used. Nothing was changed.
type ConfigError struct {
	Path     string   // of the file
	Problems []string // a line for each
	Text     string   // all of them, readable, with the lines of the file
}

// Error returns one line.
func (e *ConfigError) Error() string {
	if len(e.Problems) == 1 {
		return e.Problems[0]
	}
	return fmt.Sprintf("%s: %d problems, nothing was changed", e.Path, len(e.Problems))
}

// redacted returns the error for clients that may not read the files of the process. It contains
// nothing of the file.
func (e *ConfigError) redacted() error {
	return fmt.Errorf("%s cannot be used, nothing was changed: penstock check %[1]s, as a user who may read the file, says why: %w", display.Text(e.Path), errUnexplained)
}

// errUnexplained is the error of a configuration without the reasons.
var errUnexplained = errors.New("the process shows the problems only to root and to its own user, over its unix socket")

// RolledBack is the result of a rollback.
type RolledBack struct {
	Generation int      `json:"generation"` // in force now
	Changes    []string `json:"changes"`    // readable lines
	// Ended are the changes by hand that ended with it, with the reasons, and Restored the changes that the reload
	// had ended.
	Ended    []LiveChange `json:"ended"`
	Restored []LiveChange `json:"restored"`
	// Refused is the file, which still has the other configuration; nil: it does not.
	Refused *RefusedFile `json:"refused,omitempty"`
}

// A RefusedReload is a reload that was refused, and changed nothing.
type RefusedReload struct {
	At    time.Time `json:"at"`    // when it was refused
	By    string    `json:"by"`    // its author
	Error string    `json:"error"` // its reason: a line, without the content of the file
}

// A RefusedFile is a configuration file that was rolled back: it is not in force, but the next
// reload or start reads it again. A plan shows the difference.
type RefusedFile struct {
	Path       string    `json:"path"`       // absolute
	Generation int       `json:"generation"` // of that content
	At         time.Time `json:"at"`         // of the rollback
	By         string    `json:"by"`         // its author
	Why        string    `json:"why"`        // its reason
	Automatic  bool      `json:"automatic"`  // it came by itself
}
