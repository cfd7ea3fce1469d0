package load_test

import (
	"context"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/penstock/penstock/bench/load"
	"github.com/penstock/penstock/bench/sink"
)

// TestPreamble: each workload sends the preamble first on each connection, and a sink removes it.
func TestPreamble(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- sink.Serve(ctx, l.(*net.TCPListener), min(runtime.NumCPU(), 2)) }()
	defer func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	record := append([]byte{0x16, 3, 1, 0, 200}, make([]byte, 200)...)
	for _, p := range []load.Plan{
		{Workload: load.Bulk, Connections: 2, Duration: 20 * time.Millisecond, Check: true},
		{Workload: load.Echo, Connections: 3, Size: 64, Duration: 20 * time.Millisecond},
		{Workload: load.Connect, Connections: 2, Duration: 20 * time.Millisecond},
		{Workload: load.Idle, Connections: 3},
		{Workload: load.Mix, Duration: 50 * time.Millisecond},
		{Workload: load.Correct},
	} {
		r := load.NewRunner()
		r.Hold = r.Release
		p.Address = l.Addr().String()
		bare, err := r.Run(ctx, p)
		if err != nil {
			t.Fatal(err)
		}
		p.Preamble = record
		with, err := r.Run(ctx, p)
		if err != nil || with.Failed > 0 {
			t.Errorf("%s: %v, %d failed: %+v", p.Workload, err, with.Failed, with)
			continue
		}
		extra := int64(len(record)) * with.Connections
		switch p.Workload {
		case load.Idle: // the only workload that sends the same bytes each time
			if with.Sent != bare.Sent+extra || with.Received != bare.Received {
				t.Errorf("%d and %d bytes, without it %d and %d", with.Sent, with.Received, bare.Sent, bare.Received)
			}
		case load.Echo, load.Connect:
			if with.Sent != with.Received+extra {
				t.Errorf("%s: %d bytes sent, %d received, %d connections", p.Workload, with.Sent, with.Received, with.Connections)
			}
		}
	}
}
