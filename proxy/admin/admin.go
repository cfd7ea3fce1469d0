// Package admin is the admin API of a running load balancer, and the client that the program's commands use. It is HTTP
// with JSON. On a unix socket the user and the groups of a client decide what it may do, on TCP its token or
// certificate.
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

// A Balancer is a running load balancer that reports its status and can be changed. Its methods are safe for concurrent
// use and return at once, without waiting for the end of a drain. The last argument of a method that changes something
// is the author of the change, for logs.
//
// A change lasts until a reload changes the same line of the file.
type Balancer interface {
	// Status returns the current status. It leaves Problems, Generation, Pending, Started, PID and Version empty: the
	// [Server] fills them in.
	Status() Status
	// Sessions returns the connected clients that q selects. The list ends early if ctx or the balancer ends. An error
	// wraps [ErrInvalid], or [ErrNotFound] for a name that no client can have.
	Sessions(ctx context.Context, q SessionQuery, o SessionOrder) (SessionList, error)
	// EndSessions ends sessions for the caller named in by. It returns when the last session has ended, after
	// [EndWait], or when ctx ends; in the last two cases it continues to end them. With q.DryRun it only counts them.
	// Its errors are the same as of Sessions.
	EndSessions(ctx context.Context, q EndQuery, by string) (Ended, error)
	// StopEnding stops all requests to end sessions.
	StopEnding(by string) Stopped
	// Sources returns the sources with the most connections, new connections, refusals or bytes.
	Sources(ctx context.Context, q SourceQuery) (Sources, error)
	MirrorReporter
	LaneSwitcher
	// Deny denies a source for a time, at a listener or, with "", at all listeners. If the source is already denied
	// there, the new end replaces the old one. The source's sessions continue. Undeny removes a denial; its error may
	// wrap [ErrNotFound]. Denied returns the denials in force.
	Deny(source, listener string, within time.Duration, by string) (NewDenial, error)
	Undeny(source, listener, by string) (Changed, error)
	Denied() []Denial
	// Why examines the joined sessions that q selects, and returns what slows them down. If q.For is not 0, it examines
	// them twice.
	Why(ctx context.Context, q WhyQuery) (Why, error)
	// DrainListener makes a listener stop accepting clients. Its sessions get their time to drain. If the listener was
	// already drained, nothing changes.
	DrainListener(name, by string) (ListenerDrained, error)
	// ChangeEndpoint changes an endpoint without the file. Its errors wrap [ErrNotFound] or [ErrInvalid].
	ChangeEndpoint(c *EndpointChange, by string) (EndpointChanged, error)
	// ReadyListener makes a drained listener accept clients again. If its address is no longer
	// available, the listener stays drained.
	ReadyListener(ctx context.Context, name, by string) (Changed, error)
	// SetSplit changes the percentages of a split. percent must have each upstream of the split, and the percentages
	// must add up to 100. The route is counted from 0.
	SetSplit(listener string, route int, percent map[string]float64, by string) (Changed, error)
}

// A Reloader changes the running configuration.
type Reloader interface {
	// Reload reads the configuration again and applies it. The error may be a [*ConfigError], or wrap an error of
	// [rollback.Keeper.Apply].
	Reload(ctx context.Context, o rollback.Options) (Reloaded, error)
	// Confirm and Rollback are as in [rollback.Keeper].
	Confirm(ctx context.Context, number int, by string) (generation int, err error)
	Rollback(ctx context.Context, to int, by string) (RolledBack, error)
	// Generations returns the kept generations.
	Generations() rollback.Status
	// Plan returns the changes that a reload from a file would make, and changes nothing. An empty path is the file in
	// force; its error may be a [*ConfigError]. Another file is read only for a trusted caller: otherwise the error
	// wraps [ErrForbidden]. If that file cannot be used, the error does not say why, because not every client may learn
	// about the files and the environment that the process can read.
	Plan(ctx context.Context, path string, trusted bool) (Plan, error)
}

// Reloaded is the result of a reload.
type Reloaded struct {
	Generation int               `json:"generation"`        // generation in force now
	Changes    []string          `json:"changes"`           // changes in words; without a change the generation stays the same
	Pending    *rollback.Waiting `json:"pending,omitempty"` // left out if no confirmation is needed
	// Ended has the changes by hand that the reload ended, with the reasons. A rollback restores them.
	Ended []LiveChange `json:"ended"`
}

// A Plan is the set of changes that a reload would make.
type Plan struct {
	Path        string          `json:"path"`        // absolute path of the file in force
	Generation  int             `json:"generation"`  // generation in force
	Connections int64           `json:"connections"` // present connections
	Changes     []PlannedChange `json:"changes"`     // changes that a reload would make
	// Live has the changes by hand. If the reload would end a change, the change has the reason.
	Live []LiveChange `json:"live"`
}

// PlannedChange is one change of a plan.
type PlannedChange struct {
	What        string      `json:"what"`                  // change in words
	Connections int64       `json:"connections,omitempty"` // present connections that the change affects
	Disposition Disposition `json:"fate,omitempty"`        // what happens to these connections
	// ResetAfterUs is how long draining connections may last.
	ResetAfterUs int64 `json:"reset_after_us,omitempty"`
	// Leaves are the addresses at which the listener will no longer listen. If there are any, Connections counts the
	// connections accepted at these addresses, and Kept the listener's other connections.
	Leaves []Bind `json:"leaves,omitempty"`
	Kept   int64  `json:"kept,omitempty"`
	// LaneReturned counts the listener's connections in the lane that will come back, because the change keeps the
	// listener's sessions in user space. The other counts do not include them.
	LaneReturned int64 `json:"lane_returned,omitempty"`
	// Draining counts the listener's connections that continue to drain, because the listener gave up their address, or
	// was drained, earlier. The other counts do not include them.
	Draining int64 `json:"draining,omitempty"`
	// DrainingUs is the time within which these draining connections are reset.
	DrainingUs int64 `json:"draining_us,omitempty"`
}

// A Disposition is what happens to the connections that a change affects.
type Disposition string

// The dispositions.
const (
	Keep  Disposition = "keep"  // they stay as they are
	Drain Disposition = "drain" // they may last for a time, and are then reset
	Reset Disposition = "reset" // they end at once
	// Depends means that a connection is kept if the next source of endpoints lists its endpoint, and is drained or
	// reset otherwise.
	Depends Disposition = "depends"
)

// A ConfigError reports a configuration that cannot be used. Nothing was changed.
type ConfigError struct {
	Path     string   // path of the file
	Problems []string // one line for each problem
	Text     string   // all problems as text, with the lines of the file
}

// Error returns one line.
func (e *ConfigError) Error() string {
	if len(e.Problems) == 1 {
		return e.Problems[0]
	}
	return fmt.Sprintf("%s: %d problems, nothing was changed", e.Path, len(e.Problems))
}

// redacted returns the error for clients that may not read the files of the process. It quotes nothing of the file.
func (e *ConfigError) redacted() error {
	return fmt.Errorf("%s cannot be used, nothing was changed: penstock check %[1]s, as a user who may read the file, says why: %w", display.Text(e.Path), errUnexplained)
}

// errUnexplained replaces the problems of a configuration.
var errUnexplained = errors.New("the process shows the problems only to root and to its own user, over its unix socket")

// RolledBack is the result of a rollback.
type RolledBack struct {
	Generation int      `json:"generation"` // generation in force now
	Changes    []string `json:"changes"`    // changes in words
	// Ended has the changes by hand that the rollback ended, with the reasons. Restored has the changes by hand that
	// the reload had ended, and that are in force again.
	Ended    []LiveChange `json:"ended"`
	Restored []LiveChange `json:"restored"`
	// Refused is the file if it still has the other configuration. Left out otherwise.
	Refused *RefusedFile `json:"refused,omitempty"`
}

// A RefusedReload is a reload that was refused. It changed nothing.
type RefusedReload struct {
	At    time.Time `json:"at"`    // when it was refused
	By    string    `json:"by"`    // who asked for the reload
	Error string    `json:"error"` // why it was refused, in one line that quotes nothing of the file
}

// A RefusedFile is a configuration file that was rolled back. It is not in force, but the next reload or start reads it
// again. A plan shows the difference.
type RefusedFile struct {
	Path       string    `json:"path"`       // absolute path
	Generation int       `json:"generation"` // generation that the file still has
	At         time.Time `json:"at"`         // time of the rollback
	By         string    `json:"by"`         // who asked for the rollback
	Why        string    `json:"why"`        // why it was rolled back
	Automatic  bool      `json:"automatic"`  // the process rolled back by itself
}
