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
	"github.com/penstock/penstock/proxy/internal/tally"
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
	// EndSessions ends sessions. by is whose request it is. It returns when the last has ended, but not
	// later than after [EndWait], when ctx ends, or with the number alone for q.DryRun. The end goes on then. Its
	// errors are those of Sessions.
	EndSessions(ctx context.Context, q EndQuery, by string) (Ended, error)
	// StopEnding calls off the ends that are under way.
	StopEnding(by string) Stopped
	// Sources returns the sources with the most of something.
	Sources(ctx context.Context, q SourceQuery) (Sources, error)
	MirrorReporter
	LaneSwitcher
	// Deny denies a source for a time, at a listener or, if that is empty, at all. One that is denied there
	// already gets the new end. Its sessions go on. Undeny takes that back; its error may wrap [ErrNotFound].
	// Denied returns the denials in force.
	Deny(source, listener string, within time.Duration, by string) (NewDenial, error)
	Undeny(source, listener, by string) error
	Denied() []Denial
	// Why looks at joined sessions that match, twice if q.For is not 0, and returns what limits them.
	Why(ctx context.Context, q WhyQuery) (Why, error)
	// DrainListener makes a listener stop accepting clients. Its sessions may last as long as
	// those of a draining process.
	DrainListener(name, by string) error
	// ChangeEndpoint changes an endpoint without the file. Its errors wrap [ErrNotFound] or [ErrInvalid].
	ChangeEndpoint(c *EndpointChange, by string) (EndpointChanged, error)
	// ReadyListener has a drained listener accept clients again. If its address is not available any more,
	// it stays drained.
	ReadyListener(ctx context.Context, name, by string) error
	// SetSplit changes the percentages of a split, by the names of its upstreams. The names
	// must be those of the split, and the percentages must add up to 100. The route is counted
	// from 0.
	SetSplit(listener string, route int, percent map[string]float64, by string) error
}

// A Reloader changes the running configuration.
type Reloader interface {
	// Reload reads the configuration again and applies it. The error may be a [*ConfigError],
	// or wrap the error of [rollback.Keeper.Apply].
	Reload(ctx context.Context, o rollback.Options) (Reloaded, error)
	// Confirm and Rollback are based on those of [rollback.Keeper].
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
	// Live are the changes by hand; those that the reload would end have the reason.
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
	// LaneReturned counts the listener's connections that have left user space now, and come back because its
	// sessions stay there from then on. The other counts are without them.
	LaneReturned int64 `json:"lane_returned,omitempty"`
	// Draining counts the listener's connections at addresses that it had given up before, or from before it was drained, which go on draining. The other counts are
	// without them.
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
	Maint    State = "maint"    // of an endpoint: it gets no clients and is not checked, by an operator
	Up       State = "up"       // of an endpoint
	Down     State = "down"     // of an endpoint: its check fails
	Standby  State = "standby"  // of an endpoint: its check has the answer of a healthy standby
	Ejected  State = "ejected"  // of an endpoint: outlier detection has ejected it for a time
	Removed  State = "removed"  // of an endpoint no longer in the configuration, or removed by hand: it drains
)

// Status is the status of a load balancer. Its JSON form is part of the interface of the
// program.
type Status struct {
	// Problems are the current problems, outages first; empty: none.
	Problems []Problem `json:"problems"`

	PID     int       `json:"pid"`     // of the process
	Version string    `json:"version"` // of the program
	Started time.Time `json:"started"` // when the process began
	State   State     `json:"state"`   // Serving or Draining
	// DrainStarts is the time at which a process that is not ready any more begins to drain. Left out: it is
	// ready, or drains.
	DrainStarts time.Time `json:"drain_starts,omitzero"`
	// DrainEnds is the time at which the remaining sessions of a draining process are reset.
	// Left out: it does not drain, or without a limit.
	DrainEnds  time.Time `json:"drain_ends,omitzero"`
	Generation int       `json:"generation"` // the number of the one in force, from 1
	// GenerationSince is when that came into force: by the last reload, or the last rollback.
	GenerationSince time.Time `json:"generation_since"`
	// Refused is the file if it still has a configuration that was rolled back; nil: it does not.
	Refused *RefusedFile `json:"refused,omitempty"`
	// ReloadRefused is the last reload if it was refused; nil: it was not.
	ReloadRefused *RefusedReload `json:"reload_refused,omitempty"`
	// AdminCertificates and MetricsCertificates are the certificate of admin.tls and of metrics.tls; empty: there is none.
	AdminCertificates   []Certificate `json:"admin_certificates,omitempty"`
	MetricsCertificates []Certificate `json:"metrics_certificates,omitempty"`
	// FileProblem says that the next start or reload fails because of the file; left out: it does not.
	FileProblem string `json:"file_problem,omitempty"`
	// Pending is the reload that waits for confirmation; nil: there is none.
	Pending *rollback.Waiting `json:"pending,omitempty"`
	Changes Changes           `json:"changes"`
	// Restart lists the keys of the configuration whose values take effect when the process is
	// started again, with the values in force and the new ones.
	Restart []string `json:"restart,omitempty"`

	Summary
	TLSSessions TLSSessions `json:"tls_sessions" metric:"tls_"`
	// Traces is the export of traces; nil: there was none.
	Traces *Traces `json:"traces,omitempty" metric:"spans_"`
	// Counters are all that the rollback-if of a reload may name. None ever falls.
	Counters map[string]int64 `json:"counters"`
	// Live are the changes by hand that are in force, in their order.
	Live []LiveChange `json:"live"`
	// DeniedByHand are the sources that are denied by hand; nil: none is.
	DeniedByHand *Denials `json:"denied_by_hand,omitempty"`
	// StateFile is the file that keeps them over a restart; nil: there is none.
	StateFile *StateFile `json:"state_file,omitempty"`
	Listeners []Listener `json:"listeners"` // by name
	Upstreams []Upstream `json:"upstreams"` // by name
	// RemovedWaiting counts the clients that wait for endpoints of upstreams no longer in the
	// configuration, by upstream.
	RemovedWaiting map[string]int64 `json:"removed_waiting,omitempty"`
}

// Traces is the export of sampled sessions as spans. Each sampled session is in one of the numbers
// that follow it, once: Open, Queued, Exported, Unconfirmed or Dropped.
type Traces struct {
	Endpoint string  `json:"endpoint,omitempty"` // of the collector; left out: no further session is sampled
	Sample   float64 `json:"sample"`             // percentage of the clients that are sampled
	// Sessions that were sampled, ever.
	Sampled int64 `json:"sampled" metric:"sampled_total"`
	Open    int64 `json:"open"` // that go on
	// Spans that wait to be sent, or are being sent.
	Queued int64 `json:"queued" metric:"queued"`
	// Spans that the collector has confirmed.
	Exported int64 `json:"exported" metric:"exported_total"`
	// Spans that were sent and had no answer: the collector may have them.
	Unconfirmed int64 `json:"unconfirmed" metric:"unconfirmed_total"`
	// Dropped are those that the collector does not have, by reason: queue_full, refused (by the
	// collector), unavailable (it was not reached), shutdown. Only reasons that occurred.
	Dropped map[string]int64 `json:"dropped,omitempty"`
	// LastError is the last failure of a request; left out: there was none.
	LastError   string    `json:"last_error,omitempty"`
	LastErrorAt time.Time `json:"last_error_at,omitzero"` // when that was
}

// Changes counts the changes of the configuration while serving, and has the time that the
// last one took. The time has two parts: preparing the new parts beside the old, which harms
// no client, and bringing them into force.
type Changes struct {
	Made       int64 `json:"made"`        // ever
	PreparedUs int64 `json:"prepared_us"` // of the last one: preparing, in microseconds
	SwappedUs  int64 `json:"swapped_us"`  // of the last one: bringing it into force, in microseconds
}

// Connections are counts of clients.
type Connections struct {
	// Clients that were accepted, ever.
	Accepted int64 `json:"accepted" metric:"accepted_total"`
	// Clients that are served now.
	Active int64 `json:"active" metric:"connections"`
	// Limit of concurrent clients; left out: there is none.
	Most    int64 `json:"most,omitempty" metric:"connections_limit,nonzero"`
	Refused int64 `json:"refused"` // ever
	// Left are those, ever, that have gone before they had an endpoint: they are not refused. Of a listener
	// it is not known.
	Left int64 `json:"left,omitempty"`
}

// TLSSessions are the sessions with TLS in the process. They have a limit of their own.
type TLSSessions struct {
	// Sessions with TLS in the process, now.
	Active int64 `json:"active" metric:"sessions"`
	// Limit of concurrent sessions with TLS; more are refused.
	Most int64 `json:"most" metric:"sessions_limit"`
}

// Handshakes are counts of TLS handshakes of this process.
type Handshakes struct {
	Active    int64            `json:"active"`           // under way, or waiting for their turn
	Completed int64            `json:"completed"`        // ever
	Resumed   int64            `json:"resumed"`          // of those: with a ticket
	Failed    map[string]int64 `json:"failed,omitempty"` // by reason; only reasons that occurred
}

// An Upstream is the status of an upstream.
type Upstream struct {
	Name    string `json:"name"`    // as in the file
	Balance string `json:"balance"` // the policy, as in the file
	// BalanceOn is the property of clients that the policy hashes, as in the file, if it is another one than the source.
	BalanceOn string `json:"balance_on,omitempty"`
	Breaker   string `json:"breaker,omitempty"` // closed, open, half-open
	Opened    int64  `json:"opened,omitempty"`  // how many times the breaker has opened
	// BreakerWhy is the reason that the breaker is not closed. BreakerUntil is the end of its
	// open state.
	BreakerWhy   string    `json:"breaker_why,omitempty"`
	BreakerUntil time.Time `json:"breaker_until,omitzero"`
	// Whether too few endpoints are healthy, so that clients are sent to all of them.
	Panic bool `json:"panic,omitempty" metric:"panic"`
	// Times that too few endpoints have become healthy, so that clients were sent to all of them.
	Panics int64 `json:"panics,omitempty" metric:"panics_total"`
	// Sessions with its endpoints now, connections being made included.
	Active int64 `json:"active" metric:"sessions"`
	// Connections are its present connections, those being made included, and Most is
	// circuit_breaker.connections. Both are left out if there is no such limit.
	Connections int64 `json:"connections,omitempty"`
	Most        int64 `json:"most,omitempty"`
	// Connecting is its connections that are being made, and MostConnecting is circuit_breaker.pending;
	// 0 and left out if there is no such limit.
	Connecting     int64 `json:"connecting,omitempty"`
	MostConnecting int64 `json:"most_connecting,omitempty"`
	// Clients that wait for room, or for an endpoint that can serve them.
	Pending int64 `json:"pending" metric:"waiting"`
	Bytes   Bytes `json:"bytes"`
	// Congestion is the congestion control of the connections to its endpoints; nil: that of the system.
	Congestion *Congestion `json:"congestion,omitempty"`
	// Connects are the connections to its endpoints, and Limited is that of a [Listener].
	Connects Connects           `json:"connects" metric:""`
	Limited  map[string]float64 `json:"limited_seconds,omitempty"`
	tally.UpstreamCounts
	// Attempts that the retry budget has denied, at most one for each client.
	RetriesDenied int64 `json:"retries_denied" metric:"retries_denied_total"`
	// Times that an endpoint would have been ejected if max_ejected had allowed it. It is 0 for an upstream with one endpoint.
	EjectionsWithheld int64 `json:"ejections_withheld,omitempty" metric:"ejections_withheld_total"`
	// Failed connections, for lack of a resource in this process or on this machine, by cause. Causes that did not occur are left out.
	LocalFaults map[string]int64 `json:"local_faults,omitempty" metric:"local_faults_total,cause"`
	// Reasons counts clients that got no endpoint, by reason.
	Reasons map[string]int64 `json:"refused_by,omitempty"`
	// LastMinute is the increase of some of the counts within about the last minute.
	LastMinute LastMinute `json:"last_minute,omitzero"`
	// Outage has the time since which no endpoint takes clients; nil: one does.
	Outage   *UpstreamOutage `json:"outage,omitempty"`
	Fallback string          `json:"fallback,omitempty"` // the upstream that gets its clients then
	// Certificates are those shown to endpoints.
	Certificates []Certificate `json:"certificates,omitempty"`
	// AuthoritiesRefused is why the present contents of the file in tls.ca are not in use, and the former ones are; left out: they are, or there is no such file.
	AuthoritiesRefused string      `json:"authorities_refused,omitempty"`
	Handshakes         *Handshakes `json:"handshakes,omitempty"` // with endpoints; nil: TLS is not originated here
	Discovery          *Discovery  `json:"discovery,omitempty"`  // nil: its endpoints are in the file
	Endpoints          []Endpoint  `json:"endpoints"`            // those that drain after their removal included
}

// LastMinute is the increase of counts of an [Upstream] within about a minute.
type LastMinute struct {
	Refused            int64 `json:"refused"`              // clients, for any reason
	Held               int64 `json:"held"`                 // clients that waited because no endpoint could serve them
	LastResort         int64 `json:"last_resort"`          // connections that were made
	LastResortAnswered int64 `json:"last_resort_answered"` // of these, those that served their clients
	EjectionsWithheld  int64 `json:"ejections_withheld"`   // because of max_ejected
	// LocalFaults counts connections that failed for lack of a resource on this machine.
	LocalFaults int64 `json:"local_faults"`
}

// An UpstreamOutage is a period in which no endpoint of an upstream takes clients.
type UpstreamOutage struct {
	Since time.Time `json:"since"`          // when it began
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
	Name    string `json:"name"`           // its address if it has no name
	Address string `json:"address"`        // host:port, or unix:/path
	Zone    string `json:"zone,omitempty"` // where it is; left out: not known
	// Its share of clients beside others; 0: it gets none.
	Weight int    `json:"weight" metric:"weight"`
	Backup bool   `json:"backup,omitempty"` // it gets clients only if no other endpoint can
	State  State  `json:"state"`            // up, down, standby, ejected, draining, maint or removed
	Why    string `json:"why,omitempty"`    // reason that it is not up
	// ByHand are the changes of it that were made by hand: weight 5, added.
	ByHand []string `json:"by_hand,omitempty"`
	// Until is the end of an ejection, or the time at which sessions that drain are reset.
	// Left out: there is no such time.
	Until   time.Time `json:"until,omitzero"`
	Breaker string    `json:"breaker,omitempty"` // open, half-open; left out: closed, or none
	// Times that its circuit breaker has opened. Left out: never.
	Opened int64 `json:"opened,omitempty" metric:"breaker_opened_total,nonzero"`
	// BreakerWhy is the reason that the breaker is not closed. BreakerUntil is the end of its
	// open state.
	BreakerWhy   string    `json:"breaker_why,omitempty"`
	BreakerUntil time.Time `json:"breaker_until,omitzero"`

	// Sessions now, connections being made included.
	Active int64 `json:"active" metric:"sessions"`
	// Limit of sessions. Left out: there is none.
	Max    int64 `json:"most,omitempty" metric:"sessions_limit,nonzero"`
	Picked int64 `json:"picked"` // how many times a policy has chosen it, whatever the result
	// Connections that were made to it for clients, ever.
	Total int64 `json:"total" metric:"sessions_total"`
	// Failed connections, and sessions that ended before the endpoint's first byte.
	Failures int64 `json:"failures" metric:"failures_total"`
	// Changes of the verdict of its health check.
	Transitions int64 `json:"transitions,omitempty" metric:"health_transitions_total"`
	// Times that outlier_detection has ejected it.
	Ejections int64 `json:"ejections,omitempty" metric:"ejections_total"`
	// EjectionsWithheld is that of the upstream, for this endpoint. WithheldWhy is the reason
	// of the last one.
	EjectionsWithheld           int64  `json:"ejections_withheld,omitempty"`
	EjectionsWithheldLastMinute int64  `json:"ejections_withheld_last_minute,omitempty"` // within about the last minute
	WithheldWhy                 string `json:"withheld_why,omitempty"`
	// LastFailure is the last connection that failed, or that ended without a byte of the
	// endpoint; nil: there was none.
	LastFailure *Failure `json:"last_failure,omitempty"`
	// Unresolved is why the endpoint's name did not resolve the last time; left out: it did, it is an address, or the check says so.
	Unresolved string `json:"unresolved,omitempty"`
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
	Failing  *Failing `json:"failing,omitempty"` // nil: it serves clients, as far as known
	Bytes    Bytes    `json:"bytes"`
	Connects Connects `json:"connects"`
	// Limited is that of a [Listener].
	Limited map[string]float64 `json:"limited_seconds,omitempty"`
}

// A Connecting is the clients that have waited for a connection to an endpoint for a second or more.
type Connecting struct {
	Clients int64     `json:"clients"` // now
	Since   time.Time `json:"since"`   // there has been one all the time since then
}

// A Failure is a failure of an endpoint.
type Failure struct {
	Cause string    `json:"cause"` // a line of at most 300 bytes
	Time  time.Time `json:"time"`  // when it was
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
	Clients int64     `json:"clients"` // their number
	Since   time.Time `json:"since"`   // when the first of them ended
}
