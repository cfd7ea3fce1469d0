package load

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// defaultGrace is Runner.Grace unless set.
const defaultGrace = 10 * time.Second

// What a proxy may do wrong that no system call reports.
var (
	errMismatch  = errors.New("the content received is not the content asked for")
	errTruncated = errors.New("the end of the content is missing")
)

// Runner carries out plans, one at a time. The zero value is ready.
type Runner struct {
	// Grace is how much longer than planned a connection may take to end
	// before it counts as stuck; 0 means 10 s.
	Grace time.Duration

	seed     uint32       // of the last connection; no two share one
	received atomic.Int64 // of the plan under way, bytes
}

// Received returns the bytes that the plan under way has received so far. It
// is safe to call from any goroutine.
func (r *Runner) Received() int64 { return r.received.Load() }

// bound returns when a connection that starts now counts as stuck.
func (r *Runner) bound(p Plan) time.Time {
	return time.Now().Add(p.Duration + cmp.Or(r.Grace, defaultGrace))
}

// tally is what one connection came to.
type tally struct {
	sent, received, requests int64
	latency                  *hdrhistogram.Histogram // nanoseconds; nil for Bulk
}

// Run carries out p. It fails if a connection fails, ends early, does not end
// in time or delivers a wrong byte; then all of them are closed.
func (r *Runner) Run(ctx context.Context, p Plan) (Result, error) {
	if err := p.check(); err != nil {
		return Result{}, err
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	conns, err := dial(ctx, p.Address, p.Connections)
	if err != nil {
		return Result{}, err
	}
	r.received.Store(0)
	drive := map[Workload]driver{Bulk: r.bulk, Echo: r.echo}[p.Workload]
	tallies := make([]tally, len(conns))
	var all sync.WaitGroup
	start := time.Now()
	for i, c := range conns {
		r.seed++
		seed := r.seed
		all.Go(func() {
			defer c.Close()
			defer context.AfterFunc(ctx, func() { _ = c.Close() })()
			var err error
			if tallies[i], err = drive(c, p, seed); err != nil {
				fail(fmt.Errorf("load: %s, connection %d of %d: %w", p.Workload, i+1, len(conns), err))
			}
		})
	}
	all.Wait()
	if ctx.Err() != nil {
		return Result{}, context.Cause(ctx)
	}
	return sum(tallies, time.Since(start)), nil
}

// driver is a Workload on one connection; the caller closes the connection.
type driver func(c *net.TCPConn, p Plan, seed uint32) (tally, error)

// dial opens n connections, or none.
func dial(ctx context.Context, address string, n int) ([]*net.TCPConn, error) {
	conns := make([]*net.TCPConn, 0, n)
	for range n {
		var dialer net.Dialer
		c, err := dialer.DialContext(ctx, "tcp", address)
		if err != nil {
			for _, c := range conns {
				_ = c.Close()
			}
			return nil, fmt.Errorf("load: %w", err)
		}
		conns = append(conns, c.(*net.TCPConn))
	}
	return conns, nil
}

// sum adds up the connections of a plan.
func sum(tallies []tally, elapsed time.Duration) Result {
	result := Result{Elapsed: elapsed}
	var latency *hdrhistogram.Histogram
	for _, t := range tallies {
		result.Sent += t.sent
		result.Received += t.received
		result.Requests += t.requests
		switch {
		case latency == nil:
			latency = t.latency
		default:
			latency.Merge(t.latency)
		}
	}
	if latency != nil {
		result.P50 = time.Duration(latency.ValueAtQuantile(50))
		result.P99 = time.Duration(latency.ValueAtQuantile(99))
	}
	return result
}
