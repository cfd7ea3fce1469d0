package load

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

// Serve reads Plans from in, one JSON object after the other, carries out each of them, and writes Events to out.
// It returns nil when in ends, and breaks off a plan that is in progress. It returns an error if it cannot read a
// plan or write an event. It returns only after in has ended or ctx has ended. In the second case, a goroutine
// goes on reading in until in ends.
func Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	plans := make(chan Plan)
	go func() { fail(decode(ctx, in, plans)) }()
	runner, events := NewRunner(), json.NewEncoder(out)
	for {
		select {
		case p := <-plans:
			if p.Release {
				continue // no plan holds connections
			}
			if err := perform(ctx, runner, p, plans, events); err != nil {
				return err
			}
		case <-ctx.Done():
			if err := context.Cause(ctx); !errors.Is(err, io.EOF) {
				return err
			}
			return nil
		}
	}
}

// decode sends the plans on until in ends.
func decode(ctx context.Context, in io.Reader, plans chan<- Plan) error {
	decoder := json.NewDecoder(in)
	for {
		var p Plan
		if err := decoder.Decode(&p); err != nil {
			return err
		}
		select {
		case plans <- p:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// perform carries out a plan, and writes its events.
func perform(ctx context.Context, runner *Runner, p Plan, plans <-chan Plan, events *json.Encoder) error {
	ctx, cancel := context.WithCancel(ctx)
	var last Event
	done := make(chan struct{})
	stages := make(chan Event, 3) // keeps the order of the stages
	defer func() { cancel(); <-done }()
	runner.Hold = func() { stages <- Event{Holding: true} }
	runner.Warm = func() { stages <- Event{Warm: true} }
	runner.Over = func() { stages <- Event{Over: true} }
	go func() {
		defer close(done)
		last = outcome(runner.Run(ctx, p))
	}()
	if p.Workload != Idle {
		plans = nil // the next plan must wait
	}
	for {
		var e Event
		select {
		case <-done:
			return events.Encode(last)
		case next := <-plans:
			if !next.Release {
				return fmt.Errorf("load: a plan for %s while one for %s is under way: release that first", next.Workload, p.Workload)
			}
			runner.Release()
			continue
		case e = <-stages:
		}
		if err := events.Encode(e); err != nil {
			return err
		}
	}
}

func outcome(result Result, err error) Event {
	if err != nil {
		return Event{Error: err.Error()}
	}
	return Event{Result: &result}
}
