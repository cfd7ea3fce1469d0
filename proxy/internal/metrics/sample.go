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

// Process is the status of the process, without its listeners and upstreams.
type Process struct {
	admin.Status
	EveryRefusal map[string]int64 // clients by reason, with those that did not occur
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
	Generation       int
	Unconfirmed      bool // a reload waits to be confirmed
	Reloads, Refused int64
	RolledBack       int64
	LastOK           bool      // the last attempt to load a configuration, the first one included, has succeeded
	LastSuccess      time.Time // of the last one that has
	File             FileState
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

// A Listener is the status of a listener, and its counters that the status does not have.
type Listener struct {
	admin.Listener
	Refused []tally.Count // by reason, with those that did not occur
	Tally   tally.Counts
	Seconds [verdict.Kinds]float64 // its sessions' time by verdict
	KeyedBy string                 // the property of Keyed
	Keyed   []Keyed                // by a property of the clients; nil: there are none

	labels string
}

// A Keyed is the sessions of a listener with one value of a property of their clients.
type Keyed struct {
	Value    string
	Sessions int64
	Bytes    Bytes
}

// An Upstream is the status of an upstream without its endpoints, and its counters that the status does not have.
type Upstream struct {
	admin.Upstream
	Refused []tally.Count // by reason, with those that did not occur
	Tally   tally.Counts
	Seconds [verdict.Kinds]float64 // its sessions' time by verdict
	States  map[admin.State]int64  // number of endpoints

	labels string
}

// An Endpoint is the status of an endpoint, and its counters that the status does not have.
type Endpoint struct {
	Upstream string
	admin.Endpoint
	Tally       tally.Counts
	Seconds     [verdict.Kinds]float64 // its sessions' time by verdict
	AnswerTimes []int64                // first answers by powers of two of a microsecond
	Answered    time.Duration          // the sum of their times

	labels string
}

// up reports whether the endpoint gets clients.
func (p *Endpoint) up() bool { return p.State == admin.Up && p.Breaker == "" }
