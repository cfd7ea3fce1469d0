package metrics

import (
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/internal/tally"
	"github.com/penstock/penstock/proxy/internal/verdict"
)

// A Sample is the counters of a process at one time.
type Sample struct {
	Process   Process
	Config    Config
	Loops     []Loop
	Listeners []Listener
	Upstreams []Upstream
	Endpoints []Endpoint // of all upstreams, in their order
}

// reset empties the sample for another scrape. It keeps the memory.
func (s *Sample) reset() {
	clear(s.Listeners)
	clear(s.Upstreams)
	clear(s.Endpoints)
	*s = Sample{Loops: s.Loops[:0], Listeners: s.Listeners[:0], Upstreams: s.Upstreams[:0], Endpoints: s.Endpoints[:0]}
}

// Process is the counters of the whole process.
type Process struct {
	Version  string
	Draining bool
	Summary  admin.Summary
	Traces   *admin.Traces    // nil: there were none
	Counters map[string]int64 // those of [admin.Status]
	Refused  map[string]int64 // clients by reason, with those that did not occur

	ConnectionsMost, TLSActive, TLSMost int64

	Pipes PipeBudget
}

// PipeBudget is the memory that pipes may take, in bytes, and the number of leases that were denied.
type PipeBudget struct {
	Bytes, UsedBytes int64
	Denied           int64
}

// A FileState is the state of the configuration file beside the running configuration.
type FileState string

// The states of the file.
const (
	FileSame    FileState = "same"    // the running configuration is its content
	FileDiffers FileState = "differs" // a reload would change something
	FileInvalid FileState = "invalid" // a reload would be refused
	FileUnknown FileState = "unknown" // it was not looked at yet, or there is no file
)

// Config is the state of the configuration.
type Config struct {
	Generation        int
	Unconfirmed       bool // a reload waits to be confirmed
	Restart           int  // keys whose values take effect at a restart
	Reloads, Refused  int64
	RolledBack        int64
	LastOK            bool      // the last attempt to load a configuration, the first one included, has succeeded
	LastSuccess       time.Time // of the last one that has
	Prepared, Swapped time.Duration
	File              FileState
}

// A Loop is the counters of an event loop. Turns and Late count by powers of two of a microsecond.
type Loop struct {
	admin.Loop
	Turns, Late []int64
	Measured    bool // its overruns are

	labels string
}

// Bytes are bytes by direction and engine.
type Bytes = admin.Bytes

// A Listener is the counters of a listener.
type Listener struct {
	Name                   string
	State                  admin.State
	Accepted, Active, Most int64
	Bytes                  Bytes
	Refused, Pauses        []tally.Count
	Tally                  tally.Counts
	Limited                [verdict.Kinds]float64 // seconds
	Queues                 []admin.Queue
	Certificates           []admin.Certificate
	Handshakes             *admin.Handshakes // nil: TLS is not terminated here
	Mirrors                *admin.Mirrors    // nil: there are none
	Cancels                *admin.Cancels    // nil: it does not speak PostgreSQL
	KeyedBy                string            // the property of Keyed
	Keyed                  []Keyed           // by a property of the clients; nil: there are none
	Rewrites               *admin.Rewrites   // nil: there are none
	Filters                []admin.Filter
	Protocols              map[string]int64 // clients by what their first bytes have shown

	labels string
}

// A Keyed is the sessions of a listener with one value of a property of their clients.
type Keyed struct {
	Value    string
	Sessions int64
	Bytes    Bytes
}

// An Upstream is the counters of an upstream.
type Upstream struct {
	Name                                    string
	Active, Waiting                         int64
	Retries, RetriesDenied, Queued, Held    int64
	LastResort, Fallbacks, Failures         int64
	Unkeyed                                 int64
	Panic                                   bool
	Panics, EjectionsWithheld               int64
	Breaker                                 string // closed, open, half-open; "": there is none
	Opened                                  int64
	Connections, Most, Pending, MostPending int64 // of the breaker; Most and MostPending 0: no limit
	Bytes                                   Bytes
	Refused                                 []tally.Count
	LocalFaults                             map[string]int64
	Tally                                   tally.Counts
	Limited                                 [verdict.Kinds]float64 // seconds
	States                                  map[admin.State]int64  // number of endpoints
	Discovery                               *Discovery             // nil: endpoints are in the file
	Certificates                            []admin.Certificate
	Handshakes                              *admin.Handshakes // nil: TLS is not originated here

	labels string
}

// Discovery is the state of a source of endpoints.
type Discovery struct {
	Kind      string
	Confirmed time.Time // zero: never
	Failures  int
	Stale     bool
}

// An Endpoint is the counters of an endpoint.
type Endpoint struct {
	Upstream, Name                     string
	State                              admin.State
	Broken                             bool // by its circuit breaker
	Active, Most, Weight               int64
	Sessions, Failures                 int64
	Transitions, Ejections, BreakerHas int64 // BreakerHas counts how often its breaker has opened
	Bytes                              Bytes
	Tally                              tally.Counts
	Limited                            [verdict.Kinds]float64 // seconds
	Answers                            []int64                // first answers by powers of two of a microsecond
	Answered                           time.Duration          // the sum of their times

	labels string
}

// up reports whether the endpoint gets clients.
func (p *Endpoint) up() bool { return p.State == admin.Up && !p.Broken }
