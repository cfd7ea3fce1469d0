// Package load drives traffic through a proxy and checks the results.
//
// A Runner carries out one Plan at a time. Serve puts one behind a stream of JSON, so that the
// load can live in a process of its own. The measured workloads (Bulk, Echo, Connect, Idle)
// are one epoll loop on one thread. On a machine with few processors the cost of the load
// hides the cost of the proxies.
package load

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/penstock/penstock/bench/traffic"
)

// Workload is a shape of traffic.
type Workload string

// The workloads.
const (
	// Bulk is a few connections on which the server streams as fast as it can.
	Bulk Workload = "bulk"
	// Echo is a closed loop of small messages: each connection sends the next
	// one when the last one has come back.
	Echo Workload = "echo"
	// Connect is a closed loop of connections: open one, have one message of
	// ConnectSize bytes echoed, see the server's end of file, close.
	Connect Workload = "connect"
	// Idle is connections that have carried IdleSize bytes each way and then are
	// quiet, until a Plan with Release says to close them.
	Idle Workload = "idle"
)

// Sizes of the content of two of the workloads, in bytes each way.
const (
	ConnectSize = 64
	IdleSize    = 64 << 10
)

// Plan is one measurement to make.
type Plan struct {
	Workload    Workload `json:"workload"`
	Address     string   `json:"address"` // of the proxy, TCP
	Connections int      `json:"connections"`
	// Size is the length of an Echo message in bytes; the others ignore it.
	Size int `json:"size,omitempty"`
	// Duration is how long Bulk, Echo and Connect go on, in nanoseconds;
	// the others ignore it.
	Duration time.Duration `json:"duration"`
	// Warmup is the beginning of an Echo's Duration: requests completed before its end count neither as Requests nor in
	// the latency, and Elapsed begins there. Requests completed after Duration do not count either, and Elapsed ends
	// there. A load that was delayed until then has no warmup: Warm does not come. A Bulk's Warmup is the beginning of
	// its Duration, too: Elapsed begins at its end, and Result.Warmup has the bytes before it. The other workloads have
	// none.
	Warmup time.Duration `json:"warmup,omitempty"`
	// Hold keeps the connections of an Echo, quiet, when Duration is over,
	// until a Plan with Release says to close them.
	Hold bool `json:"hold,omitempty"`
	// Check makes Bulk compare every byte. Without it the bytes are thrown away
	// by the kernel and only their number is verified, against the trailer, so
	// that the load costs little. Echo and the others always compare.
	Check bool `json:"check,omitempty"`
	// Release ends the plan that is holding its connections, Idle or one with Hold; everything
	// else in such a Plan is ignored, and it has no Event of its own.
	Release bool `json:"release,omitempty"`
}

// check returns the error in the plan.
func (p *Plan) check() error {
	needs, ok := map[Workload]struct{ connections, duration bool }{
		Bulk: {true, true}, Echo: {true, true}, Connect: {true, true},
		Idle: {true, false},
	}[p.Workload]
	switch {
	case !ok:
		return fmt.Errorf("load: no workload %q", p.Workload)
	case needs.connections && p.Connections < 1:
		return fmt.Errorf("load: %d connections", p.Connections)
	case needs.duration && p.Duration <= 0:
		return fmt.Errorf("load: a duration of %v", p.Duration)
	case p.Hold && !p.closedLoop():
		return fmt.Errorf("load: %s holds nothing", p.Workload)
	case p.Warmup != 0 && (!p.closedLoop() && p.Workload != Bulk || p.Warmup < 0 || p.Warmup >= p.Duration):
		return fmt.Errorf("load: a warmup of %v of %s for %v", p.Warmup, p.Workload, p.Duration)
	case p.Workload == Echo && (p.Size < 1 || p.Size > traffic.MaxChunk):
		return fmt.Errorf("load: messages of %d bytes, not within 1 and %d", p.Size, traffic.MaxChunk)
	}
	return nil
}

// closedLoop reports whether the workload is messages that are answered.
func (p *Plan) closedLoop() bool { return p.Workload == Echo }

// Result is the result of a Plan. A connection that fails is the end of the plan. So every connection
// has ended with an end of file on both sides.
type Result struct {
	// Sent and Received count every byte of the plan, as this side of the proxy saw them.
	Sent     int64 `json:"sent"`
	Received int64 `json:"received"`
	Warmup   int64 `json:"warmup,omitempty"` // of Received, before the end of the Warmup
	Requests int64 `json:"requests"`         // Echo: messages that came back
	// Elapsed is from the first request to the last end of file; with a Warmup from its end
	// to the end of Duration.
	Elapsed     time.Duration `json:"elapsed"`
	Connections int64         `json:"connections"`
	// P50, P99 and Mean are of the latency of an Echo, or of a whole connection's
	// time (Connect).
	P50  time.Duration `json:"p50"`
	P99  time.Duration `json:"p99"`
	Mean time.Duration `json:"mean"`
}

// Event is a message of a load in a process of its own: a stage of the plan under way,
// and at its end either the result or the error.
type Event struct {
	// Holding says that all connections of a plan that is Idle or has Hold have carried
	// their bytes and are quiet. They stay quiet until a Plan with Release comes.
	Holding bool `json:"holding,omitempty"`
	// Warm says that the plan's Warmup is over. Over says that the plan's Duration is
	// over.
	Warm   bool    `json:"warm,omitempty"`
	Over   bool    `json:"over,omitempty"`
	Result *Result `json:"result,omitempty"`
	Error  string  `json:"error,omitempty"`
}

// ReadEvent reads a line that Serve has written. An event that reports a failure is no error
// here.
func ReadEvent(line string) (Event, error) {
	var e Event
	if err := json.Unmarshal([]byte(line), &e); err != nil {
		return Event{}, fmt.Errorf("the load said %q: %w", line, err)
	}
	return e, nil
}
