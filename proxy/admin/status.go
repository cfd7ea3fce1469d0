package admin

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock/proxy/internal/tally"
	"github.com/penstock/penstock/proxy/rollback"
)

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
	// Restart lists the keys of the configuration that take effect only when the process is started
	// again, with the values in force and the new ones.
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
	// RemovedSessions counts the sessions of upstreams no longer in the configuration, by upstream.
	RemovedSessions map[string]int64 `json:"removed_sessions,omitempty"`
}

// Traces is the export of sampled sessions as spans. Each sampled session is in one of the numbers
// that follow it, once: Open, Queued, Exported, Unconfirmed or Dropped.
type Traces struct {
	Endpoint string  `json:"endpoint,omitempty"` // of the collector; left out: no further session is sampled
	Sample   float64 `json:"sample"`             // percentage of the clients that are sampled
	// Sessions that were sampled.
	Sampled int64 `json:"sampled" metric:"sampled_total"`
	Open    int64 `json:"open"` // that go on
	// Spans that wait or are being sent.
	Queued int64 `json:"queued" metric:"queued"`
	// Spans that the collector has confirmed.
	Exported int64 `json:"exported" metric:"exported_total"`
	// Spans that were sent and had no answer.
	Unconfirmed int64 `json:"unconfirmed" metric:"unconfirmed_total"`
	// Dropped are the spans that the collector does not have, by reason: queue_full, refused (by the
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
	// Clients that were accepted.
	Accepted int64 `json:"accepted" metric:"accepted_total"`
	// Clients that are served now.
	Active int64 `json:"active" metric:"connections"`
	// Limit of concurrent clients.
	Most    int64 `json:"most,omitempty" metric:"connections_limit,nonzero"`
	Refused int64 `json:"refused"` // ever
	// Left are the clients, ever, that have gone before they had an endpoint; they do not count as
	// refused. For a listener it is not known.
	Left int64 `json:"left,omitempty"`
}

// TLSSessions are the sessions with TLS in the process. They have a limit of their own.
type TLSSessions struct {
	// Sessions with TLS in the process, now.
	Active int64 `json:"active" metric:"sessions"`
	// Limit of sessions with TLS; more are refused.
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
	// 1 in panic: clients go to all endpoints because too few are usable.
	Panic bool `json:"panic,omitempty" metric:"panic"`
	// Times that panic began.
	Panics int64 `json:"panics,omitempty" metric:"panics_total"`
	// Sessions with its endpoints now, connects included.
	Active int64 `json:"active" metric:"sessions"`
	// Connections are its present connections, including connections being made, and Most is
	// circuit_breaker.connections. Both are left out if there is no such limit.
	Connections int64 `json:"connections,omitempty"`
	Most        int64 `json:"most,omitempty"`
	// Connecting is its connections that are being made, and MostConnecting is circuit_breaker.pending;
	// 0 and left out if there is no such limit.
	Connecting     int64 `json:"connecting,omitempty"`
	MostConnecting int64 `json:"most_connecting,omitempty"`
	// Clients that wait for room or a usable endpoint.
	Pending int64 `json:"pending" metric:"waiting"`
	// The waiting clients that wait for a usable endpoint.
	PendingEndpoint int64 `json:"pending_endpoint" metric:"waiting_for_endpoint"`
	Bytes           Bytes `json:"bytes"`
	// Congestion is the congestion control of the connections to its endpoints; nil: the system's
	// default.
	Congestion *Congestion `json:"congestion,omitempty"`
	// Connects are the connections to its endpoints, and Limited is as in a [Listener].
	Connects Connects           `json:"connects" metric:""`
	Limited  map[string]float64 `json:"limited_seconds,omitempty"`
	tally.UpstreamCounts
	// Retries that the budget has denied, at most one for each client.
	RetriesDenied int64 `json:"retries_denied" metric:"retries_denied_total"`
	// Ejections that max_ejected has prevented.
	EjectionsWithheld int64 `json:"ejections_withheld,omitempty" metric:"ejections_withheld_total"`
	// Failed connections for lack of a resource here, by cause.
	LocalFaults map[string]int64 `json:"local_faults,omitempty" metric:"local_faults_total,cause"`
	// Reasons counts clients that got no endpoint, by reason.
	Reasons map[string]int64 `json:"refused_by,omitempty"`
	// LastMinute is the increase of some of the counts within about the last minute.
	LastMinute LastMinute `json:"last_minute,omitzero"`
	// Outage has the time since which no endpoint takes clients; nil: one does.
	Outage   *UpstreamOutage `json:"outage,omitempty"`
	Fallback string          `json:"fallback,omitempty"` // the upstream that gets its clients then
	// Certificates are the certificates shown to endpoints.
	Certificates []Certificate `json:"certificates,omitempty"`
	// AuthoritiesRefused is why the present contents of the file in tls.ca are not in use, and the
	// former contents still are. It is left out if the present contents are in use, or there is no
	// such file.
	AuthoritiesRefused string      `json:"authorities_refused,omitempty"`
	Handshakes         *Handshakes `json:"handshakes,omitempty"` // with endpoints; nil: TLS is not originated here
	Discovery          *Discovery  `json:"discovery,omitempty"`  // nil: its endpoints are in the file
	Endpoints          []Endpoint  `json:"endpoints"`            // also removed endpoints that drain
}

// LastMinute is the increase of counts of an [Upstream] within about a minute.
type LastMinute struct {
	Refused            int64            `json:"refused"`              // clients, for any reason
	RefusedBy          map[string]int64 `json:"refused_by,omitempty"` // Refused by reason; only reasons that occurred
	Held               int64            `json:"held"`                 // clients that waited because no endpoint could serve them
	LastResort         int64            `json:"last_resort"`          // connections that were made
	LastResortAnswered int64            `json:"last_resort_answered"` // of these, connections that served their clients
	EjectionsWithheld  int64            `json:"ejections_withheld"`   // because of max_ejected
	// LocalFaults counts connections that failed for lack of a resource on this machine.
	LocalFaults int64 `json:"local_faults"`
}

// An UpstreamOutage is a period in which no endpoint of an upstream takes clients.
type UpstreamOutage struct {
	Since time.Time `json:"since"`          // when it began
	Full  bool      `json:"full,omitempty"` // all usable endpoints are at their limit
	// Served means that clients are sent to an endpoint anyway. The last client with a known
	// result, within the last minute, was served, and not refused or held.
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
	// Its share of clients relative to others; 0: no clients.
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
	// Times that its circuit breaker has opened.
	Opened int64 `json:"opened,omitempty" metric:"breaker_opened_total,nonzero"`
	// BreakerWhy is the reason that the breaker is not closed. BreakerUntil is the end of its
	// open state.
	BreakerWhy   string    `json:"breaker_why,omitempty"`
	BreakerUntil time.Time `json:"breaker_until,omitzero"`

	// Sessions now, connects included.
	Active int64 `json:"active" metric:"sessions"`
	// Limit of sessions.
	Max    int64 `json:"most,omitempty" metric:"sessions_limit,nonzero"`
	Picked int64 `json:"picked"` // how many times a policy has chosen it, whatever the result
	// Connections made to it for clients.
	Total int64 `json:"total" metric:"sessions_total"`
	// Failed connections, and sessions that ended before the endpoint's first byte.
	Failures int64 `json:"failures" metric:"failures_total"`
	// Changes of the verdict of its health check.
	Transitions int64 `json:"transitions,omitempty" metric:"health_transitions_total"`
	// Times that outlier_detection has ejected it.
	Ejections int64 `json:"ejections,omitempty" metric:"ejections_total"`
	// EjectionsWithheld is as in the upstream, for this endpoint. WithheldWhy is the reason
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
	// Limited is as in a [Listener].
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

// Summary is the counters and the resources of a process. Sessions that still run are in it
// with the bytes that they have moved so far. Its JSON form is part of the interface of the
// program: it is a part of the [Status], and the last line on standard output.
type Summary struct {
	Connections Connections      `json:"connections" metric:""`
	RefusedBy   map[string]int64 `json:"refused_by,omitempty"` // clients, by reason; only reasons that occurred
	Bytes       Bytes            `json:"bytes"`
	// Data that had arrived and that the other side did not take, in bytes.
	Lost int64 `json:"lost" metric:"bytes_lost_total"`
	Lane *Lane `json:"lane,omitempty" metric:"lane_"` // nil: no listener has asked for it
	// Times that a direction was copied instead of spliced, by reason.
	Fallbacks map[string]int64 `json:"fallbacks" metric:"splice_fallbacks_total,reason"`
	Pipes     Pipes            `json:"pipes" metric:"pipes_"`
	Pauses    Pauses           `json:"pauses"`
	// Times that accepting failed, mostly for lack of descriptors or memory.
	AcceptPauses int64  `json:"accept_pauses" metric:"accept_pauses_total"`
	Goroutines   int64  `json:"goroutines"` // of the whole process, now
	Engine       Engine `json:"engine" metric:""`
	Arena        Arena  `json:"arena" metric:"arena_"`
	// SessionLog is the lines of the session log; left out: there was none so far.
	SessionLog *SessionLog `json:"session_log,omitempty" metric:"session_log_"`
	// CPUs are the CPUs on which the process may run now, such as 0-3; "": unknown.
	CPUs  string `json:"cpus"`
	Loops []Loop `json:"loops"` // event loops
}

// SessionLog is counts of lines, ever. Written and dropped lines together are all lines that were
// to be written, except for lines under way.
type SessionLog struct {
	// Written lines of the session log.
	Lines int64 `json:"lines" metric:"lines_total"`
	// Dropped is by reason: ring, a loop's ring was full; destination, it accepted no more lines;
	// rate, there were more than per_second. Only reasons that occurred.
	Dropped map[string]int64 `json:"dropped"`
	// Sessions without a line because of only or slower_than.
	Filtered int64 `json:"filtered" metric:"filtered_total"`
	// DroppedLastMinute are lines that were lost within about the last minute, except for reason rate. Of a
	// status.
	DroppedLastMinute int64 `json:"dropped_last_minute,omitempty"`
	// Error is the last error of the destination, for a minute. Of a status.
	Error string `json:"error,omitempty"`
}

// Pipes are counts of pipes.
type Pipes struct {
	// Pipes that were opened.
	Made int64 `json:"made" metric:"made_total"`
	// Times that an idle pipe was leased.
	Reused int64 `json:"reused" metric:"reused_total"`
	Leased int64 `json:"leased"` // now
	Idle   int64 `json:"idle"`   // now

	TooSmall int64 `json:"too_small"` // ever made smaller than the kernel's default, and not used: the user's quota was spent
	Refused  int64 `json:"refused"`   // ever not made, or not enlarged, by the kernel
	// Leases denied because the budget was spent.
	Denied int64 `json:"denied" metric:"denied_total"`

	// UsedPages are the pages of these pipes, BudgetPages the pages that they may have now, and MostPages the pages
	// that they may ever have: after a refusal the budget is lower for a while.
	UsedPages   int64 `json:"used_pages"`
	BudgetPages int64 `json:"budget_pages"`
	MostPages   int64 `json:"most_pages"`
}

// Pauses are the times for which the collector stopped everything, since the
// program began.
type Pauses struct {
	GC      int64 `json:"gc"`        // how many
	GCMaxUs int64 `json:"gc_max_us"` // the longest, in microseconds, rounded up to the resolution of the runtime
}

// Engine is the decisions of sessions' directions, see [relay.DriverStats].
type Engine struct {
	Promotions   int64 `json:"promotions"`    // from copying to splicing
	Demotions    int64 `json:"demotions"`     // and back
	PipeGrowths  int64 `json:"pipe_growths"`  // larger pipes were asked for
	MarksRaised  int64 `json:"marks_raised"`  // low-water marks of sockets, for bulk
	MarksLowered int64 `json:"marks_lowered"` // because too little came
	// Turns of sessions that were cut short for others.
	TurnsCut int64 `json:"turns_cut" metric:"turns_cut_total"`
}

// Arena is the memory in which loops keep the bytes that slow destinations have not taken.
type Arena struct {
	// Arena memory, for the bytes of slow destinations.
	Size int64 `json:"size" metric:"size_bytes"`
	// Arena memory that loops have now, read buffers included.
	Used int64 `json:"used" metric:"used_bytes"`
	// Most arena memory that loops have had.
	Peak     int64 `json:"peak" metric:"peak_bytes"`
	Residues int64 `json:"residues"` // ever kept in it, one for each time that a destination blocked
	Refused  int64 `json:"refused"`  // those for which it had no room: they were kept on the heap

	Pages string `json:"pages"` // its kind of pages, in words
	// Arena memory in huge pages, when it was made.
	Huge   int64 `json:"huge" metric:"huge_bytes"`
	Locked bool  `json:"locked"`          // it is not swapped out
	Nodes  []int `json:"nodes,omitempty"` // NUMA nodes to which it is bound, by loop; left out: to none
	// Fallback is why the pages are no better, and Unbound why it is bound to no node on a
	// machine with several; left out: they are as they should be.
	Fallback string `json:"fallback,omitempty"`
	Unbound  string `json:"unbound,omitempty"`
}

// A Loop is the counters and the resources of one event loop.
type Loop struct {
	Index int `json:"index"` // from 0, as in [Session]
	// Clients that an event loop serves now.
	Active int64 `json:"active" metric:"connections"`
	// Clients that an event loop has served.
	Accepted int64 `json:"accepted" metric:"accepted_total"`
	// Clients that an event loop has given to others.
	HandedOver int64 `json:"handed_over" metric:"handed_over_total"`
	// Rounds of waiting and serving.
	Turns int64 `json:"turns" metric:"turns_total"`
	// Times that an event loop has slept.
	Blocked      int64 `json:"blocked" metric:"blocked_total"`
	Gathers      int64 `json:"gathers"`        // times that it let bytes gather
	BusyPollHits int64 `json:"busy_poll_hits"` // times that busy polling spared it to sleep
	Batches      int64 `json:"batches"`        // times that it took to SCHED_BATCH
	BatchRefused int64 `json:"batch_refused"`  // threads that could not be given that
	LagP99Us     int64 `json:"lag_p99_us"`     // 99 % of the turns took at most this long, in microseconds
	LagMaxUs     int64 `json:"lag_max_us"`     // the longest turn
	// Long turns, of 1,024 microseconds and more.
	LongTurns int64 `json:"long_turns" metric:"long_turns_total"`
	Overruns  int64 `json:"overruns"` // turns that used 1,000 µs of CPU time, if that is measured

	TimerLateP99Us int64 `json:"timer_late_p99_us"` // 99 % of the timers fired at most this late, in microseconds
	TimerLateMaxUs int64 `json:"timer_late_max_us"` // the latest timer

	// Lag counts the turns by how long they took, and TimerLate the ticks at which timers fired by how
	// late they fired: [i] counts times below 2^i microseconds, and not below half of that. Zeros at
	// the end are left out. Subtract two statuses for the time between them, see [Within].
	Lag       []int64 `json:"lag_counts"`
	TimerLate []int64 `json:"timer_late_counts"`
}

// Bytes counts the bytes of sessions, including live ones, by direction. The counts never
// fall, except if their owner was removed and has come back.
type Bytes struct {
	ClientToEndpoint ByEngine `json:"client_to_endpoint"`
	EndpointToClient ByEngine `json:"endpoint_to_client"`
}

// ByEngine counts bytes by engine. Spliced bytes have not been in this process's memory.
type ByEngine struct {
	Spliced int64 `json:"spliced"`        // moved within the kernel
	Copied  int64 `json:"copied"`         // through this process's memory
	Lane    int64 `json:"lane,omitempty"` // as packets, of sessions that have left user space
}

// All returns the bytes of all engines.
func (m ByEngine) All() int64 { return m.Spliced + m.Copied + m.Lane }

// Answers describes how soon an endpoint sends its first byte, over all time.
type Answers struct {
	// Made is the number of sessions with an answer, and SumUs the sum of the times to their first bytes: since the
	// client's last byte if it had asked, and since the connect otherwise.
	Made     int64   `json:"made"`
	SumUs    int64   `json:"sum_us"`
	Percent  float64 `json:"percent"`   // of the answered sessions that had their first byte within WithinUs: at least 99
	WithinUs int64   `json:"within_us"` // the time, in microseconds, within which those had their first byte
	// Judged means that the endpoint's answers are known well enough to eject it if it no
	// longer answers any client.
	Judged bool `json:"judged"`
}

// A Silence is a period in which an endpoint has answered no client, though clients wait and
// that is unusual. It may be ejected for that, or not.
type Silence struct {
	Since   time.Time `json:"since"`           // of the first request without an answer
	Clients int64     `json:"clients"`         // that have sent data since, also clients that have given up
	Usual   string    `json:"usual,omitempty"` // how soon it, or the other endpoints, answered before
	Proof   string    `json:"proof"`           // further evidence that it is unusual
}

// Connects counts connections that were made to endpoints, ever, and the time that they took.
type Connects struct {
	// Connections made for clients.
	Made  int64 `json:"made" metric:"sessions_total"`
	SumUs int64 `json:"sum_us"` // the time of all together, in microseconds
	// Buckets counts them by the time they took, up to 1ms, 5ms, 20ms, 100ms, 500ms, 1.5s, 5s and 15s, and longer. Left out of an endpoint.
	Buckets []int64 `json:"buckets,omitempty"`
}

// Discovery describes how reliable the discovered endpoints of an upstream are.
type Discovery struct {
	Kind      string `json:"kind"`      // file or dns
	From      string `json:"from"`      // the file, or the name that is looked up
	Endpoints int    `json:"endpoints"` // number found
	// Changed is the time of the last change, and Confirmed the time of the last good answer, when the
	// endpoints were last known to be right. Zero and left out: never.
	Changed   time.Time `json:"changed,omitzero"`
	Confirmed time.Time `json:"confirmed,omitzero"`
	Next      time.Time `json:"next,omitzero"` // time of the next look-up; left out: on an event
	// Error is the error of the latest attempt, or "". Failures counts the failures since
	// Confirmed. If there are any, the endpoints come from an earlier attempt, if there was
	// one.
	Error    string `json:"error,omitempty"`
	Failures int    `json:"failures,omitempty"`
	Stale    bool   `json:"stale,omitempty"` // older than their source allows
	// LeftOut counts endpoints that were found but left out, because they lead back into the process.
	// LeftOutCause is the reason of the first one.
	LeftOut      int    `json:"left_out,omitempty"`
	LeftOutCause string `json:"left_out_cause,omitempty"`
}

// Unusable returns in one line why the endpoint gets no clients, or "" if it may get some.
func (e *Endpoint) Unusable() string {
	switch {
	case e.State == Draining:
		return "drained"
	case e.State == Maint:
		return "in maintenance"
	case e.State == Removed:
		return "removed"
	case e.Weight == 0:
		return "weight 0"
	case e.State == Down:
		return reason("down", time.Time{}, e.Why)
	case e.State == Standby:
		return reason("standby", time.Time{}, e.Why)
	case e.State == Ejected:
		return reason("ejected", e.Until, e.Why)
	case e.Breaker != "":
		return reason("breaker "+e.Breaker, e.BreakerUntil, e.BreakerWhy)
	case e.Max > 0 && e.Active >= e.Max:
		return fmt.Sprintf("full (%d of %d)", e.Active, e.Max)
	}
	return ""
}

// Reason returns in one line why clients get nothing from the endpoint: it is unusable, the
// last connection to it has failed, or both. Otherwise it returns "".
func (e *Endpoint) Reason() string {
	why, f := e.Unusable(), e.LastFailure
	switch {
	case f == nil || f.Over:
		return why
	case why == "":
		return f.Cause
	case e.State == Draining || e.State == Maint || e.State == Removed || e.Weight == 0 || strings.Contains(why, f.Cause):
		return why
	}
	return why + " (last failure: " + f.Cause + ")"
}

// reason joins a state, its end if known, and its reason if known.
func reason(state string, until time.Time, why string) string {
	state += when(!until.IsZero(), " until "+until.Local().Format(time.TimeOnly))
	state += when(why != "", ": "+why)
	return state
}

// Waited returns the time of the endpoint's sessions that have ended and have a verdict, and the part of it that was
// lost to the endpoint and the way to it, to a millisecond.
func (e *Endpoint) Waited() (lost, all time.Duration) {
	for kind, seconds := range e.Limited {
		d := time.Duration(1000*seconds) * time.Millisecond // rounded one by one: the sum does not depend on the order
		all += d
		if kind == "endpoint" || kind == "endpoint_network" {
			lost += d
		}
	}
	return lost, all
}

// A Lag is how long turns of a loop took, or how late its timers were, in the time between two statuses.
type Lag struct {
	// P99 and Longest are upper bounds of 99 % of the times, and of all: powers of two of a microsecond, or the longest time ever if that is less.
	P99, Longest time.Duration
	Count        int64
}

// Within returns the lag between two statuses, by [Loop.Lag] or [Loop.TimerLate] of them, and the longest time ever of the later one. If the earlier
// counts are of another process, or nil, it is the lag of all time.
func Within(before, now []int64, everUs int64) (l Lag) {
	counts := make([]int64, len(now))
	copy(counts, now)
	for i, n := range before {
		if i >= len(counts) || counts[i] < n { // counts do not fall: it was another process
			return Within(nil, now, everUs)
		}
		counts[i] -= n
	}
	for _, n := range counts {
		l.Count += n
	}
	seen := int64(0)
	for i, n := range counts {
		if n == 0 {
			continue
		}
		l.Longest = min(time.Microsecond<<i, time.Duration(everUs)*time.Microsecond)
		if seen += n; l.P99 == 0 && seen >= l.Count-l.Count/100 {
			l.P99 = l.Longest
		}
	}
	return l
}

// CounterNames are the names of the counters of a [Status].
var CounterNames = slices.Sorted(slices.Values(append([]string{"accept_pauses", "accepted", "hellos_missing", "lost", "refused", "transitions"}, tally.SumNames()...)))
