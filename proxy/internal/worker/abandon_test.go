package worker_test

import (
	"context"
	"errors"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// A stuckResolver answers when its caller does not want to know any more.
type stuckResolver struct{}

func (stuckResolver) Resolve(ctx context.Context, _ string, _ time.Duration) ([]netip.Addr, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestAbandon: a connection that is being made, and a name that is being resolved, are given up when the
// search says so, and not before; then the search goes on.
func TestAbandon(t *testing.T) {
	t.Parallel()

	stuck, well := connectTo(sockets.Silent(t)), echo(t)
	for name, first := range map[string]worker.Step{
		"connect": stuck,
		"resolve": {Action: worker.Resolve, Resolver: stuckResolver{}},
	} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int64
			first.Recheck = time.Millisecond
			d := &director{
				next: func(_ *worker.Client, n int) worker.Step {
					if n == 1 {
						return first
					}
					return connectTo(well)
				},
				abandon: func() bool { return asked.Add(1) == 3 },
			}
			r := directed(t, d, nil)
			r.serve(t)
			talk(t, r.dial(t))
			if n := asked.Load(); n != 3 {
				t.Errorf("it was asked %d times", n)
			}
			if got := d.failed(); name == "connect" && (len(got) != 1 || !errors.Is(got[0], worker.ErrAbandoned)) {
				t.Errorf("failures: %v", got)
			}
		})
	}
}

// TestClientLeavesBeforeItsStepIsAbandoned: nothing is asked about a client that has left.
func TestClientLeavesBeforeItsStepIsAbandoned(t *testing.T) {
	t.Parallel()

	step := connectTo(sockets.Silent(t))
	step.Recheck = 5 * time.Millisecond
	var asked atomic.Int64
	d := &director{
		next:    func(*worker.Client, int) worker.Step { return step },
		abandon: func() bool { asked.Add(1); return false },
	}
	r := directed(t, d, nil)
	r.serve(t)
	c := r.dial(t)
	eventually(t, func() bool { return asked.Load() > 1 })
	reset(c)
	eventually(t, func() bool { return r.Active() == 0 })
	if s := r.Summary(); s.Left != 1 || s.Refused != 0 {
		t.Errorf("%d have left, %d were refused", s.Left, s.Refused)
	}
	n := asked.Load()
	time.Sleep(50 * time.Millisecond)
	if now := asked.Load(); now != n {
		t.Errorf("asked %d times afterwards", now-n)
	}
}

// TestClientLeavesBetweenRefusals: connects that are refused within their calls do not keep the loop from noticing
// that the client has left.
func TestClientLeavesBetweenRefusals(t *testing.T) {
	t.Parallel()

	// A connect to a unix socket that nobody has fails within its call, one of TCP does not.
	refuses := worker.Step{Action: worker.Connect, Address: loop.Address{Path: sockets.Dir(t) + "/none"}}
	at, left := make(chan struct{}), make(chan struct{})
	d := &director{next: func(_ *worker.Client, n int) worker.Step {
		switch n {
		case 10:
			close(at)
			<-left
		case 10_000:
			return worker.Step{Action: worker.GiveUp}
		}
		return refuses
	}}
	r := directed(t, d, nil)
	r.serve(t)
	c := r.dial(t)
	<-at
	reset(c)
	close(left)
	eventually(t, func() bool { return r.Active() == 0 })
	if s := r.Summary(); s.Left != 1 || s.Refused != 0 {
		t.Errorf("%d have left, %d were refused after %d connects", s.Left, s.Refused, len(d.failed()))
	}
}
