package load

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/bench/traffic"
)

// defaultGrace is Runner.Grace unless set.
const defaultGrace = 10 * time.Second

// Faults of a proxy that no system call reports.
var (
	errMismatch  = errors.New("the content received is not the content asked for")
	errTruncated = errors.New("the end of the content is missing")
)

// Runner carries out plans, one at a time. Make one with NewRunner.
type Runner struct {
	// Grace is how much longer than planned a connection may take to end before
	// it counts as stuck. Without a planned time, it is how long a connection
	// may stand still. 0 means 10 s.
	Grace time.Duration
	// Hold, if not nil, is called once all connections of a plan that is Idle or has Hold
	// have carried their bytes and are quiet.
	Hold func()
	// Warm, if not nil, is called at the end of the plan's Warmup, and Over at the end of
	// its Duration.
	Warm, Over func()

	seed           atomic.Uint32 // of the last connection; no two share one
	release        chan struct{} // holds one
	sent, received atomic.Int64  // of the plan under way, bytes
}

// NewRunner makes a runner.
func NewRunner() *Runner { return &Runner{release: make(chan struct{}, 1)} }

// Received returns the bytes that the plan under way has received so far. It
// is safe to call from any goroutine.
func (r *Runner) Received() int64 { return r.received.Load() }

// Release ends the Idle plan under way once it holds its connections, or the
// next one if there is none. It is safe to call from any goroutine.
func (r *Runner) Release() {
	select {
	case r.release <- struct{}{}:
	default: // released already
	}
}

// Run carries out p. A connection that fails, ends early, does not end in time or delivers a wrong byte
// is the error, and all of them are closed.
func (r *Runner) Run(ctx context.Context, p Plan) (Result, error) {
	if err := p.check(); err != nil {
		return Result{}, err
	}
	r.sent.Store(0)
	r.received.Store(0)
	start := time.Now()
	result, err := r.drive(ctx, p)
	r.forget() // a release that came when the plan had failed
	if err != nil {
		return Result{}, err
	}
	result.Sent, result.Received = r.sent.Load(), r.received.Load()
	result.Elapsed = cmp.Or(result.Elapsed, time.Since(start))
	return result, nil
}

// forget discards a release that has not been handled.
func (r *Runner) forget() {
	select {
	case <-r.release:
	default:
	}
}

// grace returns Grace or its default.
func (r *Runner) grace() time.Duration { return cmp.Or(r.Grace, defaultGrace) }

// nextSeed returns a seed with content that is no request of another kind,
// from its first byte on. It is safe to call from any goroutine.
func (r *Runner) nextSeed() uint32 {
	for {
		seed := r.seed.Add(1)
		if traffic.Plain(traffic.NewStream(seed).Next(1)) {
			return seed
		}
	}
}

// failed names the connection that an error belongs to.
func failed(p Plan, connection int, err error) error {
	return fmt.Errorf("load: %s, connection %d of %d: %w", p.Workload, connection+1, p.Connections, err)
}
