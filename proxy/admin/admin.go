// Package admin is the admin API of a running load balancer, and the client that the program's
// commands use. It is HTTP with JSON on a unix socket, or on TCP of this machine alone.
package admin

import (
	"context"
	"errors"
	"fmt"
	"iter"
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
// drain.
//
// Changes stay until a reload changes the same thing in the file.
type Balancer interface {
	// Status returns the current status. It leaves empty Problems, Generation, Pending,
	// Started, PID and Version, which the [Server] fills in.
	Status() Status
	// Sessions yields the clients that are served. It ends when ctx does, or the balancer.
	Sessions(ctx context.Context) iter.Seq[Session]
	// Why looks at joined sessions that match, twice if q.For is not 0, and returns what limits them.
	Why(ctx context.Context, q WhyQuery) (Why, error)
	// DrainListener makes a listener stop accepting clients. Its sessions may last as long as
	// those of a draining process. A reload starts the listener again.
	DrainListener(name string) error
	// DrainEndpoint stops new clients for an endpoint, given by its name or address. Its
	// sessions may last for the upstream's drain timeout. If drain is false the endpoint gets
	// clients again.
	DrainEndpoint(upstream, endpoint string, drain bool) error
	// SetWeight changes the weight of an endpoint.
	SetWeight(upstream, endpoint string, weight int) error
	// SetSplit changes the percentages of a split, by the names of its upstreams. The names
	// must be those of the split, and the percentages must add up to 100. The route is counted
	// from 0.
	SetSplit(listener string, route int, percent map[string]float64) error
}

// A Reloader changes the running configuration.
type Reloader interface {
	// Reload reads the configuration again and applies it. The error may be a [*ConfigError],
	// or wrap the error of [rollback.Keeper.Apply].
	Reload(ctx context.Context, o rollback.Options) (Reloaded, error)
	// Confirm and Rollback are those of [rollback.Keeper].
	Confirm(ctx context.Context, number int, by string) (generation int, err error)
	Rollback(ctx context.Context, by string) (generation int, err error)
	// Generations returns the existing generations.
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
	Generation int               `json:"generation"`
	Changes    []string          `json:"changes"`           // readable lines
	Pending    *rollback.Waiting `json:"pending,omitempty"` // nil: it needs no confirmation
}

// A Plan is the set of changes that a reload would make.
type Plan struct {
	Path        string          `json:"path"`        // of the file in force, absolute
	Generation  int             `json:"generation"`  // in force
	Connections int64           `json:"connections"` // current number
	Changes     []PlannedChange `json:"changes"`     // empty: no change
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
}

// A Disposition is the treatment of the connections that a change affects.
type Disposition string

// The dispositions.
const (
	Keep  Disposition = "keep"  // they are not affected
	Drain Disposition = "drain" // they may last for a time, and are reset then
	Reset Disposition = "reset" // they end at once
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

// redacted returns the error for clients that may not read the files of the process. It has none
// of the content of the file.
func (e *ConfigError) redacted() error {
	return fmt.Errorf("%s cannot be used, nothing was changed: write penstock check %[1]s as a user who may read it, which says why: %w", display.Text(e.Path), errUnexplained)
}

// errUnexplained is the error of a configuration without the reasons.
var errUnexplained = errors.New("its content is shown only to root and to the process's own user, over its unix socket")

// A State is the state of a listener, an endpoint or a process.
type State string

// The states of listeners, endpoints and processes.
const (
	Serving  State = "serving"
	Paused   State = "paused"   // of a listener: it does not accept at the moment
	Draining State = "draining" // gets no more clients, and has some
	Up       State = "up"       // of an endpoint
	Down     State = "down"     // of an endpoint: its check fails
	Ejected  State = "ejected"  // of an endpoint: outlier detection has ejected it for a time
	Removed  State = "removed"  // of an endpoint no longer in the configuration: it drains
)

// Status is the status of a load balancer. Its JSON form is part of the interface of the
// program.
type Status struct {
	// Problems are the current problems, outages first; empty: none.
	Problems []Problem `json:"problems"`

	PID     int       `json:"pid"`
	Version string    `json:"version"`
	Started time.Time `json:"started"`
	State   State     `json:"state"` // Serving or Draining
	// DrainEnds is the time at which the remaining sessions of a draining process are reset.
	// Left out: it does not drain, or without a limit.
	DrainEnds  time.Time `json:"drain_ends,omitzero"`
	Generation int       `json:"generation"`
	// Pending is the reload that waits for confirmation; nil: there is none.
	Pending *rollback.Waiting `json:"pending,omitempty"`
	Changes Changes           `json:"changes"`
	// Restart lists the keys of the configuration whose values take effect when the process is
	// started again, with the values in force and the new ones.
	Restart []string `json:"restart,omitempty"`

	Summary
	TLSSessions TLSSessions `json:"tls_sessions"`
	// Traces is the export of traces; nil: there was none.
	Traces *Traces `json:"traces,omitempty"`
	// Counters are all that the rollback-if of a reload may name. None ever falls.
	Counters  map[string]int64 `json:"counters"`
	Listeners []Listener       `json:"listeners"`
	Upstreams []Upstream       `json:"upstreams"`
	// RemovedWaiting counts the clients that wait for endpoints of upstreams no longer in the
	// configuration, by upstream.
	RemovedWaiting map[string]int64 `json:"removed_waiting,omitempty"`
}

// Traces is the export of sampled sessions as spans. Each sampled session is in one of the numbers
// that follow it, once: Open, Queued, Exported, Unconfirmed or Dropped.
type Traces struct {
	Endpoint string  `json:"endpoint,omitempty"` // of the collector; left out: no further session is sampled
	Sample   float64 `json:"sample"`             // percentage of the clients that are sampled
	Sampled  int64   `json:"sampled"`            // ever
	Open     int64   `json:"open"`               // that go on
	Queued   int64   `json:"queued"`             // that wait to be sent, or are being sent
	Exported int64   `json:"exported"`           // that the collector has confirmed
	// Unconfirmed are those that were sent and had no answer: the collector may have them.
	Unconfirmed int64 `json:"unconfirmed"`
	// Dropped are those that the collector does not have, by reason: queue_full, refused (by the
	// collector), unavailable (it was not reached), shutdown. Only reasons that occurred.
	Dropped map[string]int64 `json:"dropped,omitempty"`
	// LastError is the last failure of a request; left out: there was none.
	LastError   string    `json:"last_error,omitempty"`
	LastErrorAt time.Time `json:"last_error_at,omitzero"`
}

// Changes counts the changes of the configuration while serving, and has the time that the
// last one took. The time has two parts: preparing the new parts beside the old, which harms
// no client, and bringing them into force.
type Changes struct {
	Made       int64 `json:"made"`
	PreparedUs int64 `json:"prepared_us"`
	SwappedUs  int64 `json:"swapped_us"`
}

// Connections are counts of clients.
type Connections struct {
	Accepted int64 `json:"accepted"`       // ever
	Active   int64 `json:"active"`         // now
	Most     int64 `json:"most,omitempty"` // limit of concurrent ones; 0 and left out: no limit
	Refused  int64 `json:"refused"`        // ever
	// Left are those, ever, that have gone before they had an endpoint: they are not refused. Of a listener
	// it is not known.
	Left int64 `json:"left,omitempty"`
}

// TLSSessions are the sessions with TLS in the process. They have a limit of their own.
type TLSSessions struct {
	Active int64 `json:"active"`
	Most   int64 `json:"most"` // limit of concurrent ones; more are refused
}

// Handshakes are counts of TLS handshakes of this process.
type Handshakes struct {
	Active    int64            `json:"active"`    // under way, or waiting for their turn
	Completed int64            `json:"completed"` // ever
	Resumed   int64            `json:"resumed"`   // of those: with a ticket
	Failed    map[string]int64 `json:"failed,omitempty"`
}

// A Listener is the status of a listener.
type Listener struct {
	Name      string   `json:"name"`
	Addresses []string `json:"addresses"`       // with the ports that the kernel chose
	Binds     []Bind   `json:"binds,omitempty"` // as in the file
	State     State    `json:"state"`
	// DrainedByHand means that it was drained through this API, until a reload.
	DrainedByHand bool `json:"drained_by_hand,omitempty"`
	// PausedAt is the limit at which accepting is paused, and Pauses counts the pauses at each
	// limit. Further clients wait in the kernel's queue. The limits are "connections",
	// "per_second" and, of all listeners together, "process per_second".
	PausedAt    string           `json:"paused_at,omitempty"`
	Pauses      map[string]int64 `json:"pauses,omitempty"`
	Connections Connections      `json:"connections"`
	Bytes       Bytes            `json:"bytes"`
	Reasons     map[string]int64 `json:"refused_by,omitempty"` // refused clients by reason
	Handshakes  *Handshakes      `json:"handshakes,omitempty"` // with clients; nil: TLS is not terminated here
	Queues      []Queue          `json:"accept_queues"`
	// Certificates are those shown to clients.
	Certificates []Certificate `json:"certificates,omitempty"`
	Routes       []Route       `json:"routes,omitempty"` // in order; the default route is the last
}

// A Bind is an address of a listener, or all sockets that systemd has passed under a name.
type Bind struct {
	Bind   string `json:"bind"`   // as in the file
	Active int64  `json:"active"` // connections accepted there
}

// A Queue is the accept queue of a listening socket: connections that the kernel has
// established, and that wait for accept.
type Queue struct {
	Address string `json:"address"`
	Known   bool   `json:"known"` // the kernel reports its length
	Length  int64  `json:"length"`
	Most    int64  `json:"most"` // if more wait the queue overflows, and clients have to try again
	// Dropped counts the overflows, and DroppedLastMinute those within about the last minute,
	// as of the last second. Both are 0 if unknown: the kernel does not count them for
	// Multipath TCP and unix sockets.
	Dropped           int64 `json:"dropped"`
	DroppedLastMinute int64 `json:"dropped_last_minute"`
	DroppedKnown      bool  `json:"dropped_known"`
}

// A Certificate is one that is shown to peers.
type Certificate struct {
	Path string    `json:"path"`
	From time.Time `json:"from"` // start of its validity
	Ends time.Time `json:"ends"`
}

// A Route is the destination of a listener's clients.
type Route struct {
	Match string             `json:"match,omitempty"` // as in the file; "" for the default route
	To    map[string]float64 `json:"to"`              // percentages by upstream
}

// An Upstream is the status of an upstream.
type Upstream struct {
	Name    string `json:"name"`
	Balance string `json:"balance"`
	Breaker string `json:"breaker,omitempty"` // closed, open, half-open
	Opened  int64  `json:"opened,omitempty"`  // how many times the breaker has opened
	// BreakerWhy is the reason that the breaker is not closed. BreakerUntil is the end of its
	// open state.
	BreakerWhy   string    `json:"breaker_why,omitempty"`
	BreakerUntil time.Time `json:"breaker_until,omitzero"`
	Panic        bool      `json:"panic,omitempty"`  // too few endpoints are healthy: all are used
	Panics       int64     `json:"panics,omitempty"` // how many times Panic has begun
	Active       int64     `json:"active"`           // sessions
	// Connections are its present connections, those being made included, and Most is
	// circuit_breaker.connections. Both are left out if there is no such limit.
	Connections int64 `json:"connections,omitempty"`
	Most        int64 `json:"most,omitempty"`
	// Connecting is its connections that are being made, and MostConnecting is circuit_breaker.pending;
	// 0 and left out if there is no such limit.
	Connecting     int64 `json:"connecting,omitempty"`
	MostConnecting int64 `json:"most_connecting,omitempty"`
	Pending        int64 `json:"pending"` // clients that wait for a place
	Bytes          Bytes `json:"bytes"`
	// Retries counts attempts after the first one. RetriesDenied counts those that the retry
	// budget denied, at most one for each client.
	Retries       int64 `json:"retries"`
	RetriesDenied int64 `json:"retries_denied"`
	// Held counts clients that waited because no endpoint could serve them. LastResort counts
	// connections to endpoints in spite of their state, or beyond the retries.
	Held       int64 `json:"held,omitempty"`
	LastResort int64 `json:"last_resort,omitempty"`
	// LastResortAnswered counts those of these connections that served their clients. The
	// endpoint has sent a byte or, without one, has ended the session in good order after the
	// client did.
	LastResortAnswered int64 `json:"last_resort_answered,omitempty"`
	// EjectionsWithheld counts how many times an endpoint would have been ejected if
	// max_ejected had allowed it. It is 0 for an upstream with one endpoint.
	EjectionsWithheld int64 `json:"ejections_withheld,omitempty"`
	// LocalFaults counts connections that failed for lack of a resource in this process or on
	// this machine, by cause.
	LocalFaults map[string]int64 `json:"local_faults,omitempty"`
	// Reasons counts clients that got no endpoint, by reason.
	Reasons map[string]int64 `json:"refused_by,omitempty"`
	// LastMinute is the increase of some of the counts within about the last minute.
	LastMinute LastMinute `json:"last_minute,omitzero"`
	// Outage has the time since which no endpoint takes clients; nil: one does.
	Outage   *UpstreamOutage `json:"outage,omitempty"`
	Fallback string          `json:"fallback,omitempty"` // the upstream that gets its clients then
	// Certificates are those shown to endpoints.
	Certificates []Certificate `json:"certificates,omitempty"`
	Handshakes   *Handshakes   `json:"handshakes,omitempty"` // with endpoints; nil: TLS is not originated here
	Discovery    *Discovery    `json:"discovery,omitempty"`  // nil: its endpoints are in the file
	Endpoints    []Endpoint    `json:"endpoints"`
}

// LastMinute is the increase of counts of an [Upstream] within about a minute.
type LastMinute struct {
	Refused            int64 `json:"refused"` // clients, for any reason
	Held               int64 `json:"held"`
	LastResort         int64 `json:"last_resort"`          // connections that were made
	LastResortAnswered int64 `json:"last_resort_answered"` // of these, those that served their clients
	EjectionsWithheld  int64 `json:"ejections_withheld"`
	// LocalFaults counts connections that failed for lack of a resource on this machine.
	LocalFaults int64 `json:"local_faults"`
}

// An UpstreamOutage is a period in which no endpoint of an upstream takes clients.
type UpstreamOutage struct {
	Since time.Time `json:"since"`
	Full  bool      `json:"full,omitempty"` // all usable endpoints are at their limit
	// Served means that clients are sent to an endpoint all the same. The last client with a
	// known result, within the last minute, was served, and not refused or held.
	Served    bool  `json:"served,omitempty"`
	Refused   int64 `json:"refused"`   // clients since then
	Held      int64 `json:"held"`      // clients since then that had to wait for an endpoint
	Fallbacks int64 `json:"fallbacks"` // clients since then that went to the fallback
	Unserved  int64 `json:"unserved"`  // sessions since then that have ended without a byte of their endpoint
}

// An Endpoint is the status of an endpoint.
type Endpoint struct {
	Name    string `json:"name"` // its address if it has no name
	Address string `json:"address"`
	Zone    string `json:"zone,omitempty"`
	Weight  int    `json:"weight"`
	Backup  bool   `json:"backup,omitempty"`
	State   State  `json:"state"`
	Why     string `json:"why,omitempty"` // reason that it is not up
	// Until is the end of an ejection, or the time at which sessions that drain are reset.
	// Left out: there is no such time.
	Until   time.Time `json:"until,omitzero"`
	Breaker string    `json:"breaker,omitempty"` // open, half-open; left out: closed, or none
	Opened  int64     `json:"opened,omitempty"`  // how many times the breaker has opened
	// BreakerWhy is the reason that the breaker is not closed. BreakerUntil is the end of its
	// open state.
	BreakerWhy   string    `json:"breaker_why,omitempty"`
	BreakerUntil time.Time `json:"breaker_until,omitzero"`

	Active   int64 `json:"active"`         // sessions
	Max      int64 `json:"most,omitempty"` // limit of Active; 0 and left out: no limit
	Picked   int64 `json:"picked"`         // how many times a policy has chosen it, whatever the result
	Total    int64 `json:"total"`          // sessions ever
	Failures int64 `json:"failures"`       // ever: failed connects, and sessions that ended before the first byte
	// EjectionsWithheld is that of the upstream, for this endpoint. WithheldWhy is the reason
	// of the last one.
	EjectionsWithheld           int64  `json:"ejections_withheld,omitempty"`
	EjectionsWithheldLastMinute int64  `json:"ejections_withheld_last_minute,omitempty"`
	WithheldWhy                 string `json:"withheld_why,omitempty"`
	// LastFailure is the last connection that failed, or that ended without a byte of the
	// endpoint; nil: there was none.
	LastFailure *Failure `json:"last_failure,omitempty"`
	// Connecting is left out if no client has waited for a connection for a second or more.
	Connecting *Connecting `json:"connecting,omitempty"`
	// Unanswered counts sessions in which the client has sent data and got no byte for half of
	// outlier_detection.unanswered. UnansweredMs is the time that the oldest one has waited.
	Unanswered   int64    `json:"unanswered"`
	UnansweredMs int64    `json:"unanswered_ms,omitempty"`
	Answers      *Answers `json:"answers,omitempty"` // nil: there was none yet
	Silence      *Silence `json:"silence,omitempty"` // nil: there is none
	// Failing is left out if neither outlier_detection nor circuit_breaker monitors the
	// endpoint.
	Failing *Failing `json:"failing,omitempty"` // nil: it serves clients, as far as known
	Bytes   Bytes    `json:"bytes"`
}

// A Connecting is the clients that have waited for a connection to an endpoint for a second or more.
type Connecting struct {
	Clients int64     `json:"clients"`
	Since   time.Time `json:"since"` // there has been one all the time since then
}

// A Failure is a failure of an endpoint.
type Failure struct {
	Cause string    `json:"cause"` // a line of at most 300 bytes
	Time  time.Time `json:"time"`
	// Over means that the endpoint has since done the thing that failed: a connection to it
	// was made, or it has sent data.
	Over bool `json:"over"`
	// Connecting means that the connection could not be made, and that the endpoint is the
	// cause.
	Connecting bool `json:"connecting"`
}

// A Failing is a row of five sessions or more that ended without a byte of a connected
// endpoint. The last one ended within the last minute, and none was served meanwhile.
type Failing struct {
	Clients int64     `json:"clients"`
	Since   time.Time `json:"since"`
}

// A Silence is a period in which an endpoint has answered no client, though clients wait and
// that is unusual. It may be ejected for that, or not.
type Silence struct {
	Since   time.Time `json:"since"`           // of the first request without an answer
	Clients int64     `json:"clients"`         // that have sent data since, including those that have given up
	Usual   string    `json:"usual,omitempty"` // how soon it, or the other endpoints, answered before
	Proof   string    `json:"proof"`           // further evidence that it is unusual
}

// Answers describes how soon an endpoint sends its first byte, over all time.
type Answers struct {
	Percent  float64 `json:"percent"` // of the answered sessions: at least 99
	WithinUs int64   `json:"within_us"`
	// Judged means that the endpoint's answers are known well enough to eject it if it no
	// longer answers any client.
	Judged bool `json:"judged"`
}
