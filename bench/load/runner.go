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

// defaultGrace is the default of Runner.Grace.
const defaultGrace = 10 * time.Second

// Faults of a proxy that no system call reports.
var (
	errMismatch  = errors.New("the content received is not the content asked for")
	errTruncated = errors.New("the end of the content is missing")
)

// Runner carries out plans, one at a time. Make one with NewRunner.
type Runner struct {
	// Grace is how long after the planned time a connection may take to end before it counts as stuck. Without a
	// planned time, it is how long the plan may go without moving a byte. 0 means 10 s.
	Grace time.Duration
	// Hold is called once all connections of an Idle plan have carried their bytes and are quiet. It may be nil.
	Hold func()
	// Warm is called at the end of the plan's Warmup, and Over at the end of its Duration. Both may be nil.
	Warm, Over func()

	seed           atomic.Uint32 // seed of the last connection; each connection has another seed
	release        chan struct{} // has room for one release
	sent, received atomic.Int64  // bytes of the present plan
}

// NewRunner makes a runner.
func NewRunner() *Runner { return &Runner{release: make(chan struct{}, 1)} }

// Received returns the bytes that the present plan has received so far. It is safe to call from any goroutine.
func (r *Runner) Received() int64 { return r.received.Load() }

// Release releases the connections of the present plan once they are held, or of the next such plan. It is safe to
// call from any goroutine.
func (r *Runner) Release() {
	select {
	case r.release <- struct{}{}:
	default: // released already
	}
}

// Run carries out p. It returns an error if a connection fails, ends early, does not end in time, or delivers a
// wrong byte. Then all connections are closed.
func (r *Runner) Run(ctx context.Context, p Plan) (Result, error) {
	if err := p.check(); err != nil {
		return Result{}, err
	}
	r.sent.Store(0)
	r.received.Store(0)
	start := time.Now()
	result, err := r.drive(ctx, p)
	r.forget() // release may have come after the plan failed
	if err != nil {
		return Result{}, err
	}
	result.Sent, result.Received = r.sent.Load(), r.received.Load()
	result.Elapsed = cmp.Or(result.Elapsed, time.Since(start))
	return result, nil
}

// forget discards a release that was not used.
func (r *Runner) forget() {
	select {
	case <-r.release:
	default:
	}
}

// grace returns Grace or its default.
func (r *Runner) grace() time.Duration { return cmp.Or(r.Grace, defaultGrace) }

// nextSeed returns a seed with content that is no request of another kind. Its first byte already shows that. It
// is safe to call from any goroutine.
func (r *Runner) nextSeed() uint32 {
	for {
		seed := r.seed.Add(1)
		if traffic.Plain(traffic.NewStream(seed).Next(1)) {
			return seed
		}
	}
}

// failed adds the connection's name to an error.
func failed(p Plan, connection int, err error) error {
	return fmt.Errorf("load: %s, connection %d of %d: %w", p.Workload, connection+1, p.Connections, err)
}
