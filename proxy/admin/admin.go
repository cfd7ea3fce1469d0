// Package admin is how a running load balancer is asked and told: HTTP with JSON on a unix
// socket, or on TCP of this machine alone, and the client of it that the program's commands
// use.
package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/penstock/penstock/proxy/generation"
)

// Errors of a [Balancer] and a [Reloader]. What wraps them is one line.
var (
	// ErrNotFound is wrapped for a name that nothing has (404).
	ErrNotFound = errors.New("not found")
	// ErrInvalid is wrapped for what cannot be meant (400).
	ErrInvalid = errors.New("invalid")
	// ErrForbidden is wrapped for what is not for whoever asks (403).
	ErrForbidden = errors.New("not allowed")
)

// A Balancer is what is asked and changed while it runs. Its methods are called by any
// goroutine, several at a time, and return at once: whoever drains is not waited for.
//
// What they change stays until a reload changes the same thing in the file.
type Balancer interface {
	// Status tells what there is and what it does. It is not filled in: Problems,
	// Generation, Pending, Started, PID and Version, which the [Server] knows.
	Status() Status
	// DrainListener has a listener accept nobody any more; its sessions may go on for
	// as long as the process's when it drains. It comes back by a reload.
	DrainListener(name string) error
	// DrainEndpoint has an endpoint, by its name or its address, get no more clients:
	// its sessions have upstream's drain timeout. With drain false it is back.
	DrainEndpoint(upstream, endpoint string, drain bool) error
	// SetWeight changes the weight of an endpoint.
	SetWeight(upstream, endpoint string, weight int) error
	// SetSplit changes the percentages of a split, by the names of its upstreams; they
	// must be those that the split has, and add up to 100. The route is counted from 0.
	SetSplit(listener string, route int, percent map[string]float64) error
}

// A Reloader changes the configuration of what runs.
type Reloader interface {
	// Reload reads the configuration again and applies it. The error may be a
	// [*ConfigError], or wrap what [generation.Keeper.Apply] returns.
	Reload(ctx context.Context, o generation.Options) (Reloaded, error)
	// Confirm and Rollback are those of [generation.Keeper].
	Confirm(ctx context.Context, number int, by string) (generation int, err error)
	Rollback(ctx context.Context, by string) (generation int, err error)
	// Generations tells which ones there are.
	Generations() generation.Status
	// Plan tells what a reload from a file would change, which changes nothing. An empty
	// path is that of the file in force, of which the error may be a [*ConfigError]. Another
	// file is read only for who is trusted, otherwise the error wraps [ErrForbidden]; and
	// what is wrong with it is not told: what the process may read, and its environment, are
	// not for everybody who may ask it.
	Plan(ctx context.Context, path string, trusted bool) (Plan, error)
}

// Reloaded is what has become of a reload.
type Reloaded struct {
	Generation int                 `json:"generation"`
	Changes    []string            `json:"changes"`           // lines to read
	Pending    *generation.Waiting `json:"pending,omitempty"` // nil: it stays
}

// A Plan is what a reload would change.
type Plan struct {
	Path        string    `json:"path"`        // of the file in force, absolute
	Generation  int       `json:"generation"`  // in force
	Connections int64     `json:"connections"` // there are now
	Changes     []Planned `json:"changes"`     // none: it would change nothing
}

// Planned is one change of a plan.
type Planned struct {
	What        string `json:"what"`                  // a line to read
	Connections int64  `json:"connections,omitempty"` // live ones of what changes
	Fate        Fate   `json:"fate,omitempty"`        // theirs
	// ResetAfterUs is how long those may go on that drain.
	ResetAfterUs int64 `json:"reset_after_us,omitempty"`
	// Leaves are the addresses of a listener where nobody will listen any more. Connections
	// are those that came in there then, and Kept are the listener's others.
	Leaves []Bound `json:"leaves,omitempty"`
	Kept   int64   `json:"kept,omitempty"`
}

// A Fate is what becomes of connections of what changes.
type Fate string

// The fates.
const (
	Keep  Fate = "keep"  // they go on as they began
	Drain Fate = "drain" // they may go on for a time, and are reset then
	Reset Fate = "reset" // they end at once
)

// A ConfigError is a configuration that cannot be used: nothing was changed.
type ConfigError struct {
	Path     string   // of the file
	Problems []string // a line for each
	Text     string   // all of them, for people, with what the file says there
}

// Error returns one line.
func (e *ConfigError) Error() string {
	if len(e.Problems) == 1 {
		return e.Problems[0]
	}
	return fmt.Sprintf("%s: %d problems, nothing was changed", e.Path, len(e.Problems))
}

// told is the error as those may know it who may not read what the process may: without what the
// file says.
func (e *ConfigError) told() error {
	return fmt.Errorf("%s cannot be used, nothing was changed: write penstock check %[1]s as a user who may read it, which says why: %w", e.Path, errUnsaid)
}

// errUnsaid is the error of a configuration of which it is not told what is wrong with it.
var errUnsaid = errors.New("what it says is for root, and for the user as whom the process runs, over its unix socket")

// State says what something is doing.
type State string

// The states of listeners, endpoints and processes.
const (
	Serving  State = "serving"
	Paused   State = "paused"   // of a listener: it does not accept at the moment
	Draining State = "draining" // gets no more clients, and has some
	Up       State = "up"       // of an endpoint
	Down     State = "down"     // of an endpoint: its check fails
	Ejected  State = "ejected"  // of an endpoint: outlier detection keeps it away for a time
	Removed  State = "removed"  // of an endpoint that is not in the configuration any more: it drains
)

// Status tells of a load balancer. Its JSON form is part of the interface of the program.
type Status struct {
	// Problems are what is wrong, outages first; empty: nothing.
	Problems []Problem `json:"problems"`

	PID     int       `json:"pid"`
	Version string    `json:"version"`
	Started time.Time `json:"started"`
	State   State     `json:"state"` // Serving or Draining
	// DrainEnds is when the sessions are reset that are left when the process drains; left
	// out: it does not drain, or for as long as it takes.
	DrainEnds  time.Time `json:"drain_ends,omitzero"`
	Generation int       `json:"generation"`
	// Pending is the reload that waits to be confirmed; nil: there is none.
	Pending *generation.Waiting `json:"pending,omitempty"`
	Changes Changes             `json:"changes"`

	Connections Connections `json:"connections"`
	Bytes       Bytes       `json:"bytes"`
	TLSSessions TLSSessions `json:"tls_sessions"`
	// Counters are all that a reload's rollback-if may name. None ever falls.
	Counters  map[string]int64 `json:"counters"`
	Listeners []Listener       `json:"listeners"`
	Upstreams []Upstream       `json:"upstreams"`
	// RemovedWaiting are the clients that wait for endpoints of upstreams that the configuration
	// does not name any more, by upstream.
	RemovedWaiting map[string]int64 `json:"removed_waiting,omitempty"`
}

// Changes are how often the configuration was changed while it served, and how long the
// last time took: to make what is new beside the old, which harms nobody, and then to
// bring it into force.
type Changes struct {
	Made       int64 `json:"made"`
	PreparedUs int64 `json:"prepared_us"`
	SwappedUs  int64 `json:"swapped_us"`
}

// Connections are counts of clients.
type Connections struct {
	Accepted int64 `json:"accepted"`       // ever
	Active   int64 `json:"active"`         // now
	Most     int64 `json:"most,omitempty"` // at once; 0 and left out: there is no limit
	Refused  int64 `json:"refused"`        // ever
}

// TLSSessions are those that end or begin in the process. They have a limit of their own.
type TLSSessions struct {
	Active int64 `json:"active"`
	Most   int64 `json:"most"` // at once; more are refused
}

// Handshakes are those of TLS that ends or begins here.
type Handshakes struct {
	Active    int64            `json:"active"`    // under way, or waiting for their turn
	Completed int64            `json:"completed"` // ever
	Resumed   int64            `json:"resumed"`   // of those: with a ticket
	Failed    map[string]int64 `json:"failed,omitempty"`
}

// A Listener is what a listener has done and does.
type Listener struct {
	Name      string   `json:"name"`
	Addresses []string `json:"addresses"`       // with the ports that the kernel chose
	Binds     []Bound  `json:"binds,omitempty"` // the same as in the file
	State     State    `json:"state"`
	// DrainedByHand says that it is Draining for that, until a reload.
	DrainedByHand bool `json:"drained_by_hand,omitempty"`
	// PausedAt is the limit at which it pauses, and Pauses how often it has at each: further
	// clients wait in the kernel's queue. "connections", "per_second" and, of all listeners
	// together, "process per_second".
	PausedAt    string           `json:"paused_at,omitempty"`
	Pauses      map[string]int64 `json:"pauses,omitempty"`
	Connections Connections      `json:"connections"`
	Bytes       Bytes            `json:"bytes"`
	Reasons     map[string]int64 `json:"refused_by,omitempty"` // the refused ones by reason
	Handshakes  *Handshakes      `json:"handshakes,omitempty"` // with clients; nil: TLS does not end here
	Queues      []Queue          `json:"accept_queues"`
	// Certificates are those that clients are shown.
	Certificates []Certificate `json:"certificates,omitempty"`
	Routes       []Route       `json:"routes,omitempty"` // in order; the default route is the last
}

// A Bound is where a listener listens, or all sockets that systemd has passed under a name.
type Bound struct {
	Bind   string `json:"bind"`   // as in the file
	Active int64  `json:"active"` // connections that came in there
}

// A Queue is the accept queue of a listening socket: connections that the kernel has made, and
// that wait to be accepted.
type Queue struct {
	Address string `json:"address"`
	Known   bool   `json:"known"` // the kernel says how many there are
	Length  int64  `json:"length"`
	Most    int64  `json:"most"` // when more than that wait it overflows, and clients have to try again
	// Dropped is how often it has overflowed, and DroppedLastMinute how often within about
	// the last minute, as far as the kernel counts that: for TCP.
	Dropped           int64 `json:"dropped"`
	DroppedLastMinute int64 `json:"dropped_last_minute"`
}

// A Certificate is one that peers are shown.
type Certificate struct {
	Path string    `json:"path"`
	From time.Time `json:"from"` // it is valid
	Ends time.Time `json:"ends"`
}

// A Route is where a listener's clients go.
type Route struct {
	Match string             `json:"match,omitempty"` // as in the file; "" for the default route
	To    map[string]float64 `json:"to"`              // upstreams, and their percentages
}

// An Upstream is what an upstream has done and does.
type Upstream struct {
	Name    string `json:"name"`
	Balance string `json:"balance"`
	Breaker string `json:"breaker,omitempty"` // closed, open, half-open
	Opened  int64  `json:"opened,omitempty"`  // how many times the breaker has opened
	// BreakerWhy is why it is not closed, and BreakerUntil until when it is open.
	BreakerWhy   string    `json:"breaker_why,omitempty"`
	BreakerUntil time.Time `json:"breaker_until,omitzero"`
	Panic        bool      `json:"panic,omitempty"`  // too few endpoints are healthy: all are used
	Panics       int64     `json:"panics,omitempty"` // how many times that has begun
	Active       int64     `json:"active"`           // sessions
	Pending      int64     `json:"pending"`          // clients that wait for a place
	Bytes        Bytes     `json:"bytes"`
	// Retries are attempts after the first one, and RetriesDenied those that the budget
	// forbade, one of a client at most.
	Retries       int64 `json:"retries"`
	RetriesDenied int64 `json:"retries_denied"`
	// Held are clients that have waited because no endpoint could serve them, and LastResort
	// connections to endpoints beyond what is thought of them, or beyond the retries.
	Held       int64 `json:"held,omitempty"`
	LastResort int64 `json:"last_resort,omitempty"`
	// LastResortAnswered are those of these connections whose clients were served: the endpoint
	// has sent a byte or, without one, has ended the session in good order after the client did.
	LastResortAnswered int64 `json:"last_resort_answered,omitempty"`
	// EjectionsWithheld is how many times an endpoint would have been ejected if max_ejected
	// had allowed it; of an upstream with one endpoint 0.
	EjectionsWithheld int64 `json:"ejections_withheld,omitempty"`
	// LocalFaults are connections that could not be made for want of something in this process
	// or on this machine, by cause.
	LocalFaults map[string]int64 `json:"local_faults,omitempty"`
	// Reasons are clients that got no endpoint, by reason.
	Reasons map[string]int64 `json:"refused_by,omitempty"`
	// LastMinute is by how much some of the counts have risen within about the last minute.
	LastMinute LastMinute `json:"last_minute,omitzero"`
	// Outage is since when no endpoint takes clients; nil: one does.
	Outage   *UpstreamOutage `json:"outage,omitempty"`
	Fallback string          `json:"fallback,omitempty"` // the upstream that has its clients then
	// Certificates are those that endpoints are shown.
	Certificates []Certificate `json:"certificates,omitempty"`
	Handshakes   *Handshakes   `json:"handshakes,omitempty"` // with endpoints; nil: TLS does not begin here
	Discovery    *Discovery    `json:"discovery,omitempty"`  // nil: its endpoints are in the file
	Endpoints    []Endpoint    `json:"endpoints"`
}

// LastMinute is by how much counts of an [Upstream] have risen within about a minute.
type LastMinute struct {
	Refused            int64 `json:"refused"` // clients, for whatever reason
	Held               int64 `json:"held"`
	LastResort         int64 `json:"last_resort"`          // connections that were made
	LastResortAnswered int64 `json:"last_resort_answered"` // whose clients were served
	EjectionsWithheld  int64 `json:"ejections_withheld"`
	// LocalFaults are connections that could not be made for want of something on this machine.
	LocalFaults int64 `json:"local_faults"`
}

// An UpstreamOutage is a time in which no endpoint of an upstream takes clients.
type UpstreamOutage struct {
	Since time.Time `json:"since"`
	Full  bool      `json:"full,omitempty"` // those that are usable are at their limit
	// Served says that clients are sent to an endpoint all the same, and the last of whom something
	// is known, within the last minute, was served, and not refused or held.
	Served    bool  `json:"served,omitempty"`
	Refused   int64 `json:"refused"`   // clients since then
	Held      int64 `json:"held"`      // clients since then that had to wait for an endpoint
	Fallbacks int64 `json:"fallbacks"` // clients since then that went to the fallback
}

// An Endpoint is what an endpoint has done and does.
type Endpoint struct {
	Name    string `json:"name"` // its address unless it has one
	Address string `json:"address"`
	Zone    string `json:"zone,omitempty"`
	Weight  int    `json:"weight"`
	Backup  bool   `json:"backup,omitempty"`
	State   State  `json:"state"`
	Why     string `json:"why,omitempty"` // it is not up
	// Until is the end of an ejection, and when sessions are reset that drain; left out: there
	// is no such time.
	Until   time.Time `json:"until,omitzero"`
	Breaker string    `json:"breaker,omitempty"` // open, half-open; left out: closed, or none
	Opened  int64     `json:"opened,omitempty"`  // how many times the breaker has opened
	// BreakerWhy is why it is not closed, and BreakerUntil until when it is open.
	BreakerWhy   string    `json:"breaker_why,omitempty"`
	BreakerUntil time.Time `json:"breaker_until,omitzero"`

	Active   int64 `json:"active"`         // sessions
	Most     int64 `json:"most,omitempty"` // at once; 0 and left out: any number
	Picked   int64 `json:"picked"`         // how many times a policy has chosen it, whatever came of it
	Total    int64 `json:"total"`          // sessions ever
	Failures int64 `json:"failures"`       // ever: connects that failed, and sessions that ended before the first byte
	// EjectionsWithheld is that of the upstream, for this endpoint; the last time it would have
	// been ejected for WithheldWhy.
	EjectionsWithheld           int64  `json:"ejections_withheld,omitempty"`
	EjectionsWithheldLastMinute int64  `json:"ejections_withheld_last_minute,omitempty"`
	WithheldWhy                 string `json:"withheld_why,omitempty"`
	// LastFailure is the last connection that could not be made, or that ended without a byte
	// of the endpoint; nil: there was none.
	LastFailure *Failure `json:"last_failure,omitempty"`
	// Unanswered are sessions in which the client has sent something, and nothing came for half
	// of outlier_detection.unanswered; UnansweredMs is for how long that is so of the oldest.
	Unanswered   int64    `json:"unanswered"`
	UnansweredMs int64    `json:"unanswered_ms,omitempty"`
	Answers      *Answers `json:"answers,omitempty"` // nil: there was none yet
	Silence      *Silence `json:"silence,omitempty"` // nil: there is none
	// Failing is left out where neither outlier_detection nor circuit_breaker judges the endpoint.
	Failing *Failing `json:"failing,omitempty"` // nil: it serves clients, as far as that is known
	Bytes   Bytes    `json:"bytes"`
}

// A Failure is one of an endpoint.
type Failure struct {
	Cause string    `json:"cause"` // a line of at most 300 bytes
	Time  time.Time `json:"time"`
	// Over says that the endpoint has done since what it failed to do: a connection to it was
	// made, or it has sent something.
	Over bool `json:"over"`
	// Connecting says that it is a connection that could not be made, for the endpoint's part.
	Connecting bool `json:"connecting"`
}

// A Failing is a row of five sessions or more that ended without a byte of an endpoint that had been
// connected to, the last within a minute, none having been served meanwhile.
type Failing struct {
	Clients int64     `json:"clients"`
	Since   time.Time `json:"since"`
}

// A Silence is a time for which an endpoint has answered nobody, though clients wait and that is
// not usual. It may be ejected for that, or not.
type Silence struct {
	Since   time.Time `json:"since"`           // the first question that was not answered
	Clients int64     `json:"clients"`         // that have asked since, those that have given up included
	Usual   string    `json:"usual,omitempty"` // how soon it, or the other endpoints, answered before
	Proof   string    `json:"proof"`           // what else shows that it is not usual
}

// Answers are how soon an endpoint sends its first byte, ever.
type Answers struct {
	Percent  float64 `json:"percent"` // of the sessions that have had one: at least 99
	WithinUs int64   `json:"within_us"`
	// Judged says that it is known well enough how the endpoint answers for it to be ejected
	// when it answers nobody any more.
	Judged bool `json:"judged"`
}
