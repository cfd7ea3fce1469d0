// Package load drives traffic through a proxy and checks every byte of it.
//
// A Runner carries out one Plan at a time. Serve puts one behind a stream of
// JSON, so that the load can live in a process of its own.
package load

import (
	"fmt"
	"time"

	"github.com/penstock/penstock/bench/traffic"
)

// Workload is a shape of traffic.
type Workload string

const (
	// Bulk is a few connections on which the origin streams as fast as it can.
	Bulk Workload = "bulk"
	// Echo is a closed loop of small messages: each connection sends the next
	// one when the last one has come back.
	Echo Workload = "echo"
)

// Plan is one measurement to make.
type Plan struct {
	Workload    Workload `json:"workload"`
	Address     string   `json:"address"` // of the proxy, TCP
	Connections int      `json:"connections"`
	// Size is the length of an Echo message in bytes; Bulk ignores it.
	Size     int           `json:"size,omitempty"`
	Duration time.Duration `json:"duration"` // nanoseconds
}

// check says what is wrong with the plan.
func (p *Plan) check() error {
	switch {
	case p.Workload != Bulk && p.Workload != Echo:
		return fmt.Errorf("load: no workload %q", p.Workload)
	case p.Connections < 1:
		return fmt.Errorf("load: %d connections", p.Connections)
	case p.Duration <= 0:
		return fmt.Errorf("load: a duration of %v", p.Duration)
	case p.Workload == Echo && (p.Size < 1 || p.Size > traffic.MaxChunk):
		return fmt.Errorf("load: messages of %d bytes, not within 1 and %d", p.Size, traffic.MaxChunk)
	}
	return nil
}

// Result is what a Plan came to. Every received byte has been compared with
// what the origin was asked for, and each connection has ended with an end of
// file after the load's own.
type Result struct {
	Sent     int64         `json:"sent"`     // bytes
	Received int64         `json:"received"` // bytes
	Requests int64         `json:"requests"` // echoes completed
	Elapsed  time.Duration `json:"elapsed"`  // from the first request to the last end of file
	P50      time.Duration `json:"p50"`      // of an echo's latency
	P99      time.Duration `json:"p99"`
}
