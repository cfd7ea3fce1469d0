package relay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/penstock/penstock/pipe"
	"github.com/penstock/penstock/pool"
)

// A Relay joins connections. It holds the common resources of its sessions, and is safe for
// concurrent use. It is made by [New]: a zero Relay moves nothing, and its errors wrap os.ErrInvalid.
type Relay struct {
	cfg       Config
	limits    Limits     // of sessions that were given none
	pipes     *pipe.Pool // nil where the system has no splice
	ownsPipes bool
	buffers   []bufferPool // by size, ascending
	clock     clock
	linger    time.Duration // lingerMost, but in tests
	guard     guard
	ledger    ledger
	jobs      sync.Pool // *copyJob: memory only, nothing to close
	running   running
	released  sync.Once
}

// New returns a Relay; a nil cfg means the defaults. The error wraps [ErrConfig]
// for a field that makes no sense, or the cause for which no pipe pool could be
// made. A system without splice is no error: the Relay copies, and says so by
// [FallbackUnsupported].
func New(cfg *Config) (*Relay, error) {
	if cfg == nil {
		cfg = &Config{}
	}
	r := &Relay{cfg: cfg.withDefaults(), clock: systemClock{}, linger: lingerMost, guard: guard{clock: systemClock{}}}
	if err := r.cfg.check(); err != nil {
		return nil, fmt.Errorf("penstock: relay: %w", err)
	}
	r.limits = r.cfg.limits()
	r.ledger.goroutines.shared = true
	r.guard.tick = r.cfg.TailDelay / 2
	if err := r.openBuffers(); err != nil {
		return nil, err
	}
	if err := r.openPipes(); err != nil {
		return nil, errors.Join(fmt.Errorf("penstock: relay: pipes: %w", err), r.closeBuffers())
	}
	return r, nil
}

func (r *Relay) openPipes() error {
	if r.cfg.Pipes != nil {
		r.pipes = r.cfg.Pipes
		return nil
	}
	if r.cfg.Engine == EngineCopy {
		return nil
	}
	pipes, err := pipe.NewPool(nil)
	switch {
	case errors.Is(err, pipe.ErrNotSupported):
		return nil
	case err != nil:
		return err
	}
	r.pipes, r.ownsPipes = pipes, true
	return nil
}

// Close ends the sessions on goroutines that run, with [ErrClosed], as [Session.Cut] does, and releases the Relay's resources:
// idle buffers, and idle pipes unless [Config.Pipes] was given. It does not wait. Further sessions are refused.
// Sessions of a [Driver], and copies, keep their leases until they end. A copy that begins later still works; it splices
// with [Config.Pipes] alone, see [FallbackClosed].
func (r *Relay) Close() error {
	for _, s := range r.running.close() {
		s.Cut(ErrClosed)
	}
	return r.release()
}

// Shutdown refuses further sessions with [ErrClosed], waits until the sessions on goroutines that run have ended, and closes the
// Relay. If ctx ends before, it returns the cause, and they go on: [Relay.Close] ends them. Copies, and
// the sessions of a [Driver], are the caller's to wait for.
func (r *Relay) Shutdown(ctx context.Context) error {
	if ctx == nil {
		return errNilContext
	}
	r.running.close()
	select {
	case <-r.running.none():
		return r.release()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// release releases the resources, once.
func (r *Relay) release() (err error) {
	r.released.Do(func() {
		err = r.closeBuffers()
		if r.ownsPipes {
			err = errors.Join(err, r.pipes.Close())
		}
	})
	return err
}

// Stats is the resources and the counters of a Relay.
type Stats struct {
	Pipes   pipe.Stats
	Buffers pool.Stats
	Drivers DriverStats // the sum of all drivers, and of the goroutines
}

// Stats returns the statistics of the pools of pipes and buffers, and of drivers. It may be
// called at any time.
func (r *Relay) Stats() Stats {
	s := Stats{Buffers: r.bufferStats(), Drivers: r.ledger.stats()}
	if r.pipes != nil {
		s.Pipes = r.pipes.Stats()
	}
	return s
}

// Engine returns the engine of its [Config].
func (r *Relay) Engine() Engine { return r.cfg.Engine }

// Join joins a and b until both directions have ended, and returns the result. It owns both
// connections from the call on and has closed them when it returns. It is NewSession(a,
// b).Run(ctx).
func (r *Relay) Join(ctx context.Context, a, b net.Conn) (Result, error) {
	return r.NewSession(a, b).Run(ctx)
}
