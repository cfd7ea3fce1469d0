// Package load drives traffic through a proxy and checks the results.
//
// A Runner carries out one Plan at a time. Serve runs a Runner with plans from a stream of JSON, so that the load
// can be a separate process. Each measured workload (Bulk, Echo, Connect, Idle) is one epoll loop on one thread,
// because on a machine with few processors the cost of the load hides the cost of the proxies.
package load

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/penstock/penstock/bench/traffic"
)

// Workload is a kind of traffic.
type Workload string

// The workloads.
const (
	// Bulk has a few connections on which the server streams as fast as it can.
	Bulk Workload = "bulk"
	// Echo is a closed loop of small messages: each connection sends the next message when the last one has come
	// back.
	Echo Workload = "echo"
	// Connect is a closed loop of connections: open a connection, send a message of ConnectSize bytes, receive it
	// back, receive the server's end of file, and close.
	Connect Workload = "connect"
	// Idle has connections that carry IdleSize bytes each way, and then are quiet until a Plan with Release comes.
	Idle Workload = "idle"
)

// The sizes of the content of two workloads, in bytes each way.
const (
	ConnectSize = 64
	IdleSize    = 64 << 10
)

// Plan is one measurement to make.
type Plan struct {
	Workload    Workload `json:"workload"`
	Address     string   `json:"address"` // TCP address of the proxy
	Connections int      `json:"connections"`
	// Size is the length of an Echo message in bytes. Other workloads ignore it.
	Size int `json:"size,omitempty"`
	// Duration is how long Bulk, Echo and Connect run, in nanoseconds. Idle ignores it.
	Duration time.Duration `json:"duration"`
	// Warmup is the first part of the Duration of an Echo or a Bulk, which does not count. Other workloads have
	// none.
	//
	// In an Echo, requests that are complete before the end of the Warmup, or after Duration, count neither in
	// Requests nor in the latency. Elapsed is the time in between. If the load was delayed until after Duration,
	// there is no warmup, and no Event with Warm. In a Bulk, Elapsed begins at the end of the Warmup, and
	// Result.Warmup has the bytes before that.
	Warmup time.Duration `json:"warmup,omitempty"`
	// Check makes Bulk compare every byte. Without it, the kernel throws the bytes away, and only their number is
	// compared with the trailer, so that the load costs little. The other workloads always compare.
	Check bool `json:"check,omitempty"`
	// Release ends an Idle, which holds its connections. Such a Plan has no other fields and no Event.
	Release bool `json:"release,omitempty"`
}

// check returns why the plan is invalid, or nil.
func (p *Plan) check() error {
	switch {
	case !slices.Contains([]Workload{Bulk, Echo, Connect, Idle}, p.Workload):
		return fmt.Errorf("load: no workload %q", p.Workload)
	case p.Connections < 1:
		return fmt.Errorf("load: %d connections", p.Connections)
	case p.Workload != Idle && p.Duration <= 0:
		return fmt.Errorf("load: a duration of %v", p.Duration)
	case p.Warmup != 0 && (p.Workload != Echo && p.Workload != Bulk || p.Warmup < 0 || p.Warmup >= p.Duration):
		return fmt.Errorf("load: a warmup of %v of %s for %v", p.Warmup, p.Workload, p.Duration)
	case p.Workload == Echo && (p.Size < 1 || p.Size > traffic.MaxChunk):
		return fmt.Errorf("load: messages of %d bytes, not within 1 and %d", p.Size, traffic.MaxChunk)
	}
	return nil
}

// Result is the result of a Plan. If one connection fails, the plan fails. So in a Result, every connection has
// ended with an end of file on both sides.
type Result struct {
	// Sent and Received count all bytes of the plan, on this side of the proxy.
	Sent     int64 `json:"sent"`
	Received int64 `json:"received"`
	Warmup   int64 `json:"warmup,omitempty"` // the part of Received before the end of the Warmup
	Requests int64 `json:"requests"`         // Echo: messages that came back
	// Elapsed is the time from the first request to the last end of file. With a Warmup, it is the time from the
	// end of the Warmup to the end of Duration.
	Elapsed     time.Duration `json:"elapsed"`
	Connections int64         `json:"connections"`
	// P50, P99 and Mean are the latency of an Echo, or the time of a whole connection of Connect.
	P50  time.Duration `json:"p50"`
	P99  time.Duration `json:"p99"`
	Mean time.Duration `json:"mean"`
}

// Event is a message from a load in a separate process: a stage of the present plan, or at its end either the
// result or the error.
type Event struct {
	// Holding says that all connections of an Idle plan have carried their bytes and are
	// quiet. They stay quiet until a Plan with Release comes.
	Holding bool `json:"holding,omitempty"`
	// Warm says that the plan's Warmup is over. Over says that the plan's Duration is
	// over.
	Warm   bool    `json:"warm,omitempty"`
	Over   bool    `json:"over,omitempty"`
	Result *Result `json:"result,omitempty"`
	Error  string  `json:"error,omitempty"`
}

// ReadEvent parses a line that Serve has written. If the event reports a failure, ReadEvent returns no error.
func ReadEvent(line string) (Event, error) {
	var e Event
	if err := json.Unmarshal([]byte(line), &e); err != nil {
		return Event{}, fmt.Errorf("the load said %q: %w", line, err)
	}
	return e, nil
}
