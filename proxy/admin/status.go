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
	Paused   State = "paused"   // a listener that does not accept at the moment
	Draining State = "draining" // gets no more clients, and still has some
	Maint    State = "maint"    // an endpoint that an operator has taken out: no clients, no checks
	Up       State = "up"       // an endpoint
	Down     State = "down"     // an endpoint with a failing check
	Standby  State = "standby"  // an endpoint that answers its check like a healthy standby
	Ejected  State = "ejected"  // an endpoint that outlier detection has ejected for a time
	Removed  State = "removed"  // an endpoint that was removed, by a reload or by hand, and drains
)

// Status is the status of a load balancer. Its JSON form is part of the interface of the
// program.
type Status struct {
	// Problems are the current problems, outages first.
	Problems []Problem `json:"problems"`

	PID     int       `json:"pid"`     // process ID
	Version string    `json:"version"` // version of the program
	Started time.Time `json:"started"` // when the process started
	State   State     `json:"state"`   // serving or draining
	// DrainStarts is when the process, which already fails readyz, will begin to drain. Left out if the process is
	// ready, or drains.
	DrainStarts time.Time `json:"drain_starts,omitzero"`
	// DrainEnds is when the remaining sessions of a draining process are reset. Left out if the process does not drain,
	// or has no limit.
	DrainEnds  time.Time `json:"drain_ends,omitzero"`
	Generation int       `json:"generation"` // number of the configuration in force, from 1
	// GenerationSince is when the last reload or rollback put this generation into force.
	GenerationSince time.Time `json:"generation_since"`
	// Refused is the file if it still has a configuration that was rolled back. Left out otherwise.
	Refused *RefusedFile `json:"refused,omitempty"`
	// ReloadRefused is the last reload if it was refused. Left out otherwise.
	ReloadRefused *RefusedReload `json:"reload_refused,omitempty"`
	// AdminCertificates has the certificate of admin.tls, and MetricsCertificates the certificate of metrics.tls.
	AdminCertificates   []Certificate `json:"admin_certificates,omitempty"`
	MetricsCertificates []Certificate `json:"metrics_certificates,omitempty"`
	// File is the absolute path of the configuration file. Left out if the process has none.
	File string `json:"file,omitempty"`
	// FileProblem says why the next start or reload would fail because of the file. Left out if it would not.
	FileProblem string `json:"file_problem,omitempty"`
	// Pending is the reload that waits to be confirmed, if there is one.
	Pending *rollback.Waiting `json:"pending,omitempty"`
	Changes Changes           `json:"changes"`
	// Restart lists the changed keys that take effect only at a restart, each with the value in force and the new
	// value.
	Restart []string `json:"restart,omitempty"`

	Summary
	// AcceptPausesLastMinute is the increase of accept_pauses over about the last minute.
	AcceptPausesLastMinute int64 `json:"accept_pauses_last_minute,omitempty"`

	TLSSessions TLSSessions `json:"tls_sessions" metric:"tls_"`
	// Traces is the export of traces. Left out if there was none.
	Traces *Traces `json:"traces,omitempty" metric:"spans_"`
	// Counters are the counters that a reload's rollback_if may name. They never decrease.
	Counters map[string]int64 `json:"counters"`
	// Live has the changes by hand. If the reload would end a change, the change has the reason.
	Live []LiveChange `json:"live"`
	// DeniedByHand has the sources that are denied by hand. Left out if there are none.
	DeniedByHand *Denials `json:"denied_by_hand,omitempty"`
	// StateFile is the file that keeps changes by hand over a restart. Left out if there is none.
	StateFile *StateFile `json:"state_file,omitempty"`
	Listeners []Listener `json:"listeners"` // sorted by name
	Upstreams []Upstream `json:"upstreams"` // sorted by name
	// RemovedWaiting counts, by upstream, the clients that wait for an endpoint of an upstream that is no longer in the
	// configuration.
	RemovedWaiting map[string]int64 `json:"removed_waiting,omitempty"`
	// RemovedSessions counts the sessions of upstreams no longer in the configuration, by upstream.
	RemovedSessions map[string]int64 `json:"removed_sessions,omitempty"`
	// RemovedUntil is when the last of these sessions is reset, by upstream. Left out for upstreams with sessions that
	// go on.
	RemovedUntil map[string]time.Time `json:"removed_until,omitempty"`
	// ClosedListeners has the sessions of listeners that were removed or drained, or have left an address, by listener.
	ClosedListeners map[string]Closed `json:"closed_listeners,omitempty"`
}

// Closed is about sessions of a listener that is closed.
type Closed struct {
	Sessions int64     `json:"sessions"` // sessions that go on until they end, or are reset
	Until    time.Time `json:"until"`    // when the last of them is reset
}

// Traces is the export of sampled sessions as spans. Each sampled session is counted once more: in Open, Queued,
// Exported, Unconfirmed or Dropped.
type Traces struct {
	Endpoint string  `json:"endpoint,omitempty"` // URL of the collector; left out if no more sessions are sampled
	Sample   float64 `json:"sample"`             // percentage of the clients that are sampled
	// Sessions that were sampled.
	Sampled int64 `json:"sampled" metric:"sampled_total"`
	Open    int64 `json:"open"` // sampled sessions that are still running
	// Spans that wait or are being sent.
	Queued int64 `json:"queued" metric:"queued"`
	// Spans that the collector has confirmed.
	Exported int64 `json:"exported" metric:"exported_total"`
	// Spans that were sent but not answered.
	Unconfirmed int64 `json:"unconfirmed" metric:"unconfirmed_total"`
	// Dropped counts, by reason, the spans that did not reach the collector: queue_full, refused (by the collector),
	// unavailable (no connection) or shutdown. Only reasons that occurred.
	Dropped map[string]int64 `json:"dropped,omitempty"`
	// LastError is the error of the last failed request. Left out if none has failed.
	LastError   string    `json:"last_error,omitempty"`
	LastErrorAt time.Time `json:"last_error_at,omitzero"` // time of the last error
}

// Changes counts the configuration changes of the running process, and has the duration of the last one in two parts:
// preparing the new parts beside the old ones, which affects no client, and putting them into force.
type Changes struct {
	Made       int64 `json:"made"`        // number of changes
	PreparedUs int64 `json:"prepared_us"` // microseconds that the last change took to prepare
	SwappedUs  int64 `json:"swapped_us"`  // microseconds that the last change took to come into force
}

// Connections counts clients.
type Connections struct {
	// Clients that are served now.
	Active int64 `json:"active" metric:"connections" column:"sessions"`
	// Clients that were accepted.
	Accepted int64 `json:"accepted" metric:"accepted_total" column:"accepted"`
	// Limit of concurrent clients.
	Most    int64 `json:"most,omitempty" metric:"connections_limit,nonzero"`
	Refused int64 `json:"refused" column:"refused,nonzero"` // refused clients
	// Left counts the clients that left before they had an endpoint. They do not count as refused. A listener does not
	// have this count.
	Left int64 `json:"left,omitempty"`
}

// TLSSessions counts the sessions with TLS in the process, which have a limit of their own.
type TLSSessions struct {
	// Sessions with TLS in the process now.
	Active int64 `json:"active" metric:"sessions"`
	// Limit of sessions with TLS; more are refused.
	Most int64 `json:"most" metric:"sessions_limit"`
}

// Handshakes counts this process's TLS handshakes.
type Handshakes struct {
	tally.HandshakeCounts
	Failed map[string]int64 `json:"failed,omitempty"` // failed handshakes by reason; only reasons that occurred
}

// An Upstream is the status of an upstream.
type Upstream struct {
	Name    string `json:"name"`    // name in the file
	Balance string `json:"balance"` // policy in the file
	// BalanceOn is the property of clients that the policy hashes, if it is not the source.
	BalanceOn string `json:"balance_on,omitempty"`
	Breaker   string `json:"breaker,omitempty"` // state of the circuit breaker: closed, open or half-open
	Opened    int64  `json:"opened,omitempty"`  // how often the breaker has opened
	// BreakerWhy is why the breaker is not closed, and BreakerUntil when its open state ends.
	BreakerWhy   string    `json:"breaker_why,omitempty"`
	BreakerUntil time.Time `json:"breaker_until,omitzero"`
	// 1 in panic: clients go to all endpoints because too few are usable.
	Panic bool `json:"panic,omitempty" metric:"panic"`
	// Times that panic began.
	Panics int64 `json:"panics,omitempty" metric:"panics_total"`
	// Sessions now, with mirrors and connections being made.
	Active int64 `json:"active" metric:"sessions" column:"sessions"`
	// Connections is the number of present connections, including connections being made, and Most their limit,
	// circuit_breaker.connections. Both are left out without a limit.
	Connections int64 `json:"connections,omitempty"`
	Most        int64 `json:"most,omitempty"`
	// Connecting is the number of connections being made, and MostConnecting their limit, circuit_breaker.pending. Both
	// are left out without a limit.
	Connecting     int64 `json:"connecting,omitempty"`
	MostConnecting int64 `json:"most_connecting,omitempty"`
	// Clients that wait for room or a usable endpoint.
	Pending int64 `json:"pending" metric:"waiting" column:"waiting,nonzero,wide"`
	// Waiting clients that need a usable endpoint.
	PendingEndpoint int64 `json:"pending_endpoint" metric:"waiting_for_endpoint"`
	Bytes           Bytes `json:"bytes"`
	// Congestion is the congestion control of connections to the endpoints. Left out for the system's default.
	Congestion *Congestion `json:"congestion,omitempty"`
	// Connects counts the connections to the endpoints. Limited is as in a [Listener].
	Connects Connects           `json:"connects" metric:""`
	Limited  map[string]float64 `json:"limited_seconds,omitempty"`
	tally.UpstreamCounts
	// Retries that the budget has denied, at most one for each client.
	RetriesDenied int64 `json:"retries_denied" metric:"retries_denied_total"`
	// Ejections that max_ejected has prevented.
	EjectionsWithheld int64 `json:"ejections_withheld,omitempty" metric:"ejections_withheld_total"`
	// Failed connections for lack of a resource on this machine, by cause.
	LocalFaults map[string]int64 `json:"local_faults,omitempty" metric:"local_faults_total,cause"`
	// Reasons counts clients that got no endpoint, by reason.
	Reasons map[string]int64 `json:"refused_by,omitempty"`
	// LastMinute has the increase of some counts over about the last minute.
	LastMinute LastMinute `json:"last_minute,omitzero"`
	// Outage is the present outage: no endpoint takes clients. Left out if one does.
	Outage   *UpstreamOutage `json:"outage,omitempty"`
	Fallback string          `json:"fallback,omitempty"` // upstream that gets the clients during an outage
	// Certificates are the certificates shown to endpoints.
	Certificates []Certificate `json:"certificates,omitempty"`
	// AuthoritiesRefused says why the new contents of the tls.ca file are not used, and the old contents still are.
	// Left out if the present contents are used, or there is no such file.
	AuthoritiesRefused string      `json:"authorities_refused,omitempty"`
	Handshakes         *Handshakes `json:"handshakes,omitempty"` // handshakes with endpoints; left out if connections to endpoints have no TLS
	Discovery          *Discovery  `json:"discovery,omitempty"`  // left out if the endpoints are in the file
	Endpoints          []Endpoint  `json:"endpoints"`            // endpoints, including removed ones that drain
}

// LastMinute has the increase of counts of an [Upstream] over about a minute.
type LastMinute struct {
	Refused            int64            `json:"refused"`              // refused clients
	RefusedBy          map[string]int64 `json:"refused_by,omitempty"` // refused clients by reason; only reasons that occurred
	Held               int64            `json:"held"`                 // clients that waited because no endpoint could serve them
	LastResort         int64            `json:"last_resort"`          // connections of last resort
	LastResortAnswered int64            `json:"last_resort_answered"` // connections of last resort that served their clients
	EjectionsWithheld  int64            `json:"ejections_withheld"`   // ejections that max_ejected has prevented
	// LocalFaults counts connections that failed for lack of a resource on this machine.
	LocalFaults int64 `json:"local_faults"`
}

// An UpstreamOutage is a time in which no endpoint of an upstream takes clients.
type UpstreamOutage struct {
	Since time.Time `json:"since"`          // when the outage began
	Full  bool      `json:"full,omitempty"` // all usable endpoints are at their limit
	// Served means that clients are served anyway: an endpoint served the last client with a known result since then,
	// within the last minute, or the fallback responds in place of an endpoint.
	Served    bool  `json:"served,omitempty"`
	Refused   int64 `json:"refused"`   // clients refused since then
	Held      int64 `json:"held"`      // clients that had to wait for an endpoint since then
	Fallbacks int64 `json:"fallbacks"` // clients that went to the fallback since then
	Unserved  int64 `json:"unserved"`  // sessions that ended since then without a byte from their endpoint
}

// An Endpoint is the status of an endpoint.
type Endpoint struct {
	Name    string `json:"name"`           // name in the file, or the address
	Address string `json:"address"`        // host:port, or unix:/path
	Zone    string `json:"zone,omitempty"` // zone of the endpoint; left out if unknown
	// Share of the clients, relative to the other weights; 0: no clients.
	Weight int    `json:"weight" metric:"weight"`
	Backup bool   `json:"backup,omitempty"` // gets clients only if no other endpoint can
	State  State  `json:"state"`            // up, down, standby, ejected, draining, maint or removed
	Why    string `json:"why,omitempty"`    // why the state is not up
	// Since is since when the endpoint has been down, standby or ejected. Left out in other states.
	Since time.Time `json:"since,omitzero"`
	// ByHand has the changes by hand to the endpoint, such as weight 5, or added.
	ByHand []string `json:"by_hand,omitempty"`
	// Until is when an ejection ends, or when draining sessions are reset. Left out otherwise.
	Until time.Time `json:"until,omitzero"`
	// SlowUntil is until when slow_start gives it less than its weight. Left out otherwise.
	SlowUntil time.Time `json:"slow_until,omitzero"`
	Breaker   string    `json:"breaker,omitempty"` // open or half-open; left out if the breaker is closed, or there is none
	// Times that the circuit breaker has opened.
	Opened int64 `json:"opened,omitempty" metric:"breaker_opened_total,nonzero"`
	// BreakerWhy is why the breaker is not closed, and BreakerUntil when its open state ends.
	BreakerWhy   string    `json:"breaker_why,omitempty"`
	BreakerUntil time.Time `json:"breaker_until,omitzero"`

	// Sessions now, with mirrors and connections being made.
	Active int64 `json:"active" metric:"sessions" column:"sessions"`
	// Limit of sessions.
	Max    int64 `json:"most,omitempty" metric:"sessions_limit,nonzero"`
	Picked int64 `json:"picked"` // how often a policy has chosen the endpoint, whatever the result
	tally.EndpointCounts
	// EjectionsWithheld counts ejections of this endpoint that max_ejected has prevented. WithheldWhy is why the last
	// one was due.
	EjectionsWithheld           int64  `json:"ejections_withheld,omitempty"`
	EjectionsWithheldLastMinute int64  `json:"ejections_withheld_last_minute,omitempty"` // ejections withheld within about the last minute
	WithheldWhy                 string `json:"withheld_why,omitempty"`
	// LastFailure is the last connection that failed, or ended without a byte from the endpoint. Left out if there was
	// none.
	LastFailure *Failure `json:"last_failure,omitempty"`
	// Unresolved is why the last look-up of the endpoint's name failed. Left out if it succeeded, if the endpoint has
	// an IP address, or if the check already says so.
	Unresolved string `json:"unresolved,omitempty"`
	// Connecting has the clients that wait for a connection. Left out if none has waited for a second or more.
	Connecting *Connecting `json:"connecting,omitempty"`
	// Unanswered counts the sessions in which the client has sent data and has had no answer for half of
	// outlier_detection.unanswered. UnansweredMs is the longest of these waits.
	Unanswered   int64    `json:"unanswered"`
	UnansweredMs int64    `json:"unanswered_ms,omitempty"`
	Answers      *Answers `json:"answers,omitempty"` // left out before the first answer
	Silence      *Silence `json:"silence,omitempty"` // left out if the endpoint answers as usual
	// Failing is left out if the endpoint serves clients, as far as is known, or if neither outlier_detection nor
	// circuit_breaker monitors it.
	Failing  *Failing `json:"failing,omitempty"`
	Bytes    Bytes    `json:"bytes"`
	Connects Connects `json:"connects"`
	// Limited is as in a [Listener].
	Limited map[string]float64 `json:"limited_seconds,omitempty"`
}

// Connecting counts the clients that have waited for a connection to an endpoint for a second or more.
type Connecting struct {
	Clients int64     `json:"clients"` // number of these clients now
	Since   time.Time `json:"since"`   // since when at least one client has waited like this
}

// A Failure is a failure of an endpoint.
type Failure struct {
	Cause string    `json:"cause"` // a line of at most 300 bytes
	Time  time.Time `json:"time"`  // when it happened
	// Over means that what failed has worked since: a connection was made, or the endpoint has sent data.
	Over bool `json:"over"`
	// Connecting means that the connection could not be made because of the endpoint.
	Connecting bool `json:"connecting"`
}

// A Failing is a series of five or more sessions that ended without a byte from a connected endpoint. The last one
// ended within the last minute, and none was served in between.
type Failing struct {
	Clients int64     `json:"clients"` // number of these sessions
	Since   time.Time `json:"since"`   // when the first of them ended
}

// Summary has the counters and resources of a process. Sessions that still run count with the bytes that they have
// moved so far. Its JSON form is part of the interface of the program: it is part of the [Status], and the last line on
// standard output.
type Summary struct {
	Connections Connections      `json:"connections" metric:""`
	RefusedBy   map[string]int64 `json:"refused_by,omitempty"` // refused clients by reason; only reasons that occurred
	Bytes       Bytes            `json:"bytes"`
	// Received bytes that the other side did not take before the session ended.
	Lost int64 `json:"lost" metric:"bytes_lost_total"`
	Lane *Lane `json:"lane,omitempty" metric:"lane_"` // left out if no listener has lane: auto or require
	// Times that a direction was copied instead of spliced, by reason.
	Fallbacks map[string]int64 `json:"fallbacks" metric:"splice_fallbacks_total,reason"`
	Pipes     Pipes            `json:"pipes" metric:"pipes_"`
	Pauses    Pauses           `json:"pauses"`
	// Times that accepting failed, mostly for lack of descriptors or memory.
	AcceptPauses int64  `json:"accept_pauses" metric:"accept_pauses_total"`
	Goroutines   int64  `json:"goroutines"` // goroutines of the process now
	Engine       Engine `json:"engine" metric:""`
	Arena        Arena  `json:"arena" metric:"arena_"`
	// SessionLog counts the lines of the session log. Left out if there was no log so far.
	SessionLog *SessionLog `json:"session_log,omitempty" metric:"session_log_"`
	// CPUs says where the process may run now, such as 0-3, or "" if unknown.
	CPUs  string `json:"cpus"`
	Loops []Loop `json:"loops"` // event loops
}

// SessionLog counts lines since the start. Written and dropped lines together are all lines, except for lines still on
// their way.
type SessionLog struct {
	// Written lines of the session log.
	Lines int64 `json:"lines" metric:"lines_total"`
	// Dropped counts the dropped lines by reason: queue (a loop's queue was full), destination (it accepted no more
	// lines) or rate (more than per_second). Only reasons that occurred.
	Dropped map[string]int64 `json:"dropped"`
	// Number of lines that only or slower_than left out.
	Filtered int64 `json:"filtered" metric:"filtered_total"`
	// DroppedLastMinute counts the lines dropped within about the last minute, except for the reason rate. Only in a
	// status.
	DroppedLastMinute int64 `json:"dropped_last_minute,omitempty"`
	// Error is the destination's last error, if it is at most a minute old. Only in a status.
	Error string `json:"error,omitempty"`
	// StuckSince is since when the destination takes none of the lines that wait, if that has lasted ten seconds.
	StuckSince time.Time `json:"stuck_since,omitzero"`
}

// Pipes counts pipes, as in pipe.Stats.
type Pipes struct {
	// Pipes that were opened.
	Made int64 `json:"made" metric:"made_total"`
	// Times that an idle pipe was leased.
	Reused int64 `json:"reused" metric:"reused_total"`
	Leased int64 `json:"leased"` // pipes in use now
	Idle   int64 `json:"idle"`   // idle pipes now

	Degraded int64 `json:"too_small"` // pipes that the kernel made smaller than its default, because the user's quota was spent; they were not used
	Refused  int64 `json:"refused"`   // pipes that the kernel did not make, or did not enlarge
	// Leases denied because the budget was spent.
	Denied int64 `json:"denied" metric:"denied_total"`

	// UsedPages are the pages of these pipes, and BudgetPages the pages that pipes may take now. LinePages is the
	// highest budget: after the kernel has refused pages, the budget is lower for a while.
	UsedPages   int64 `json:"used_pages"`
	BudgetPages int64 `json:"budget_pages"`
	LinePages   int64 `json:"most_pages"`
}

// Pauses describes the garbage collector's stop-the-world pauses since the process started.
type Pauses struct {
	GC      int64 `json:"gc"`        // number of pauses
	GCMaxUs int64 `json:"gc_max_us"` // longest pause in microseconds, rounded up to the runtime's resolution
}

// Engine counts the decisions about directions of sessions, see [relay.DriverStats].
type Engine struct {
	Promotions   int64 `json:"promotions"`    // changes from copying to splicing
	Demotions    int64 `json:"demotions"`     // changes from splicing to copying
	PipeGrowths  int64 `json:"pipe_growths"`  // requests for a larger pipe
	MarksRaised  int64 `json:"marks_raised"`  // low-water marks raised, for bulk transfers
	MarksLowered int64 `json:"marks_lowered"` // low-water marks lowered, because too little data came
	// Turns that were cut short to let other sessions run.
	TurnsCut int64 `json:"turns_cut" metric:"turns_cut_total"`
}

// Arena is the memory in which loops keep bytes that slow destinations have not taken yet.
type Arena struct {
	// Arena memory, for the bytes of slow destinations.
	Budget int64 `json:"size" metric:"size_bytes"`
	// Arena memory that loops have now, read buffers included.
	Used int64 `json:"used" metric:"used_bytes"`
	// Largest amount of arena memory that loops have had.
	Peak         int64 `json:"peak" metric:"peak_bytes"`
	Residues     int64 `json:"residues"` // how often a blocked destination's bytes were kept in the arena
	HeapResidues int64 `json:"refused"`  // how often they were kept on the heap, because the arena was full

	Pages string `json:"pages"` // kind of pages, in words
	// Arena memory that was in huge pages when the arena was made.
	Huge   int64 `json:"huge" metric:"huge_bytes"`
	Locked bool  `json:"locked"`          // the arena is locked in memory
	Nodes  []int `json:"nodes,omitempty"` // NUMA node of each loop's part; left out if the arena is not bound to nodes
	// Fallback is why the arena has no better pages. Unbound is why it is not bound to a NUMA node on a machine with
	// several. Both are left out if all is as configured.
	Fallback string `json:"fallback,omitempty"`
	Unbound  string `json:"unbound,omitempty"`
}

// A Loop has the counters and resources of one event loop.
type Loop struct {
	Index int `json:"index"` // number of the loop, from 0, as in [Session]
	tally.LoopCounts
	// Rounds of waiting and serving.
	Turns int64 `json:"turns" metric:"turns_total"`
	// Times that an event loop has slept.
	Blocked      int64 `json:"blocked" metric:"blocked_total"`
	Gathers      int64 `json:"gathers"`        // times that the loop let bytes gather
	BusyPollHits int64 `json:"busy_poll_hits"` // times that busy polling saved a sleep
	Batches      int64 `json:"batches"`        // times that the loop's thread changed to SCHED_BATCH
	BatchRefused int64 `json:"batch_refused"`  // threads that could not change to SCHED_BATCH
	Overruns     int64 `json:"overruns"`       // turns that used 1,000 µs of CPU time or more, if this is measured

	// Lag counts turns by their duration, and TimerLate ticks by how late their timers fired. Element i counts times
	// from half of 2^i to less than 2^i microseconds. Zeros at the end are left out. To get a time between two
	// statuses, subtract their counts, see [Within].
	Lag       []int64 `json:"lag_counts"`
	TimerLate []int64 `json:"timer_late_counts"`
}

// Bytes counts the bytes of sessions by direction. ByEngine counts the bytes of one direction by how they were moved.
type (
	Bytes    = tally.Bytes
	ByEngine = tally.ByEngine
)

// Answers describes how soon an endpoint sends its first byte, over all time.
type Answers struct {
	// Made is the number of sessions with an answer. SumUs is the sum of their waits for the first byte: since the
	// client's last byte, or since the connect if the client sent nothing.
	Made     int64   `json:"made"`
	SumUs    int64   `json:"sum_us"`
	Percent  float64 `json:"percent"`   // percentage of these sessions that had their first byte within WithinUs: at least 99
	WithinUs int64   `json:"within_us"` // see Percent, in microseconds
	// Judged means that enough answers are known to eject the endpoint if it stops answering.
	Judged bool `json:"judged"`
}

// A Silence is a time in which an endpoint has answered no client, although clients wait and this is unusual. The
// endpoint may have been ejected for it, or not.
type Silence struct {
	Since   time.Time `json:"since"`           // when the first request was sent that has no answer
	Clients int64     `json:"clients"`         // clients that have sent data since then, even if they have given up
	Usual   string    `json:"usual,omitempty"` // how soon this endpoint, or the others, answered before
	Proof   string    `json:"proof"`           // more evidence that the silence is unusual
}

// Connects counts the connections made to endpoints, and how long they took.
type Connects struct {
	// Connections made for clients.
	Made  int64 `json:"made" metric:"sessions_total"`
	SumUs int64 `json:"sum_us"` // sum of their durations, in microseconds
	// Buckets counts connections by duration: up to 1ms, 5ms, 20ms, 100ms, 500ms, 1.5s, 5s, 15s, and longer. An
	// endpoint does not have this count.
	Buckets []int64 `json:"buckets,omitempty"`
}

// Discovery describes the discovery of an upstream's endpoints.
type Discovery struct {
	Kind      string `json:"kind"`      // file or dns
	From      string `json:"from"`      // the file, or the name that is looked up
	Endpoints int    `json:"endpoints"` // number of endpoints found
	// Changed is when the endpoints last changed, and Confirmed when the last good answer came. They are left out
	// before that.
	Changed   time.Time `json:"changed,omitzero"`
	Confirmed time.Time `json:"confirmed,omitzero"`
	Next      time.Time `json:"next,omitzero"` // time of the next look-up; left out if an event causes it
	// Error is the error of the latest attempt, or "". Failures counts the failed attempts since there was no error.
	// Until an attempt succeeds, the endpoints of an earlier attempt stay. If some of the DNS look-ups failed, only their
	// endpoints do.
	Error    string `json:"error,omitempty"`
	Failures int    `json:"failures,omitempty"`
	Denied   string `json:"denied,omitempty"` // why DNS has no endpoints, such as NXDOMAIN; left out if it has some
	Stale    bool   `json:"stale,omitempty"`  // the endpoints are older than their source allows
	// LeftOut counts endpoints that were found but not used: they lead back into this process, are of another family than
	// source_address, are a unix socket of another user than their file, or records of DNS without a usable address.
	// LeftOutCause is the reason of the first one.
	LeftOut      int    `json:"left_out,omitempty"`
	LeftOutCause string `json:"left_out_cause,omitempty"`
}

// Unusable says in one line why the endpoint gets no clients. It returns "" if the endpoint may get some.
func (e *Endpoint) Unusable() string {
	switch {
	case e.State == Draining:
		return "drained"
	case e.State == Maint:
		return "in maintenance"
	case e.State == Removed:
		return "removed" + when(len(e.ByHand) > 0, " by hand")
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

// Taking counts the endpoints that take clients. If there are none, why says of each endpoint why it takes none, but not of
// the endpoint that was just taken out.
func (u *Upstream) Taking(changed string) (n int, why string) {
	var idle []string
	for i := range u.Endpoints {
		e := &u.Endpoints[i]
		out := ""
		switch {
		case e.State == Removed:
			continue
		case e.State == Draining:
			out = " is drained"
		case e.State == Maint:
			out = " is in maintenance"
		case e.Weight == 0:
			out = " has weight 0"
		}
		switch {
		case out != "" && e.Name == changed:
			continue
		case out != "":
		case u.Panic: // then health does not matter
		case e.State != Up:
			out = " is " + string(e.State)
		case e.Breaker != "":
			out = ": its breaker is " + e.Breaker
		}
		if out == "" {
			n++
		} else {
			idle = append(idle, e.Name+out)
		}
	}
	if n > 0 {
		return n, ""
	}
	return 0, joined("", idle)
}

// Reason says in one line why clients get nothing from the endpoint: it is unusable, the last connection to it has
// failed, or both. Otherwise it returns "". It leaves out a failure from before the present state.
func (e *Endpoint) Reason() string {
	why, f := e.Unusable(), e.LastFailure
	switch {
	case f == nil || f.Over:
		return why
	case why == "":
		return f.Cause
	case f.Time.Before(e.Since), e.State == Standby, e.State == Draining || e.State == Maint || e.State == Removed || e.Weight == 0 || strings.Contains(why, strings.TrimPrefix(f.Cause, connectFailed)):
		return why
	}
	return why + " (last failure: " + f.Cause + ")"
}

// said joins a name of the endpoint, or of several in its state, and why it gets no clients.
func (e *Endpoint) said(name, verb, why string) string {
	if e.Unusable() == "" || strings.HasPrefix(why, "weight ") || strings.HasPrefix(why, "breaker ") { // it is no state
		return name + ": " + why
	}
	return name + " " + verb + " " + why
}

// reason joins a state, its end and its reason, as far as they are known.
func reason(state string, until time.Time, why string) string {
	state += when(!until.IsZero(), " until "+until.Local().Format(time.TimeOnly))
	state += when(why != "", ": "+why)
	return state
}

// Waited returns the total time of the endpoint's ended sessions that have a verdict, and the part that was lost to the
// endpoint and its network, both rounded to a millisecond.
func (e *Endpoint) Waited() (lost, all time.Duration) {
	for kind, seconds := range e.Limited {
		d := time.Duration(1000*seconds) * time.Millisecond // rounded one by one, so that the order does not matter
		all += d
		if kind == "endpoint" || kind == "endpoint_network" {
			lost += d
		}
	}
	return lost, all
}

// A Lag says how long a loop's turns took, or how late its timers were, between two statuses.
type Lag struct {
	// P99 and Longest are upper bounds of 99 % of the times, and of all of them. They are powers of two of a
	// microsecond, or the longest time ever if it is shorter.
	P99, Longest time.Duration
	Count        int64
}

// Within returns the lag between two statuses from their [Loop.Lag] or [Loop.TimerLate] counts. everUs is the longest
// time ever of the later status. If the earlier counts are nil or of another process, Within returns the lag of all
// time.
func Within(before, now []int64, everUs int64) (l Lag) {
	counts := make([]int64, len(now))
	copy(counts, now)
	for i, n := range before {
		if i >= len(counts) || counts[i] < n { // counts never decrease: this was another process
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
