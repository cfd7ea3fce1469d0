package relay_test

import (
	"context"
	"errors"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/relay"
)

// A driving is one of the two drivers of sessions, for one test: a goroutine for
// each direction, or one loop for all the sessions of a relay.
type driving struct {
	loops  map[*relay.Relay]*looped // nil: goroutines
	clock  *fakeClock               // nil: the system's
	proven bool                     // sessions count as proven bulk from their beginning
	limits *relay.Limits            // of the sessions that are made from now on
}

// eachDriver runs a test with either driver.
func eachDriver(t *testing.T, test func(t *testing.T, d *driving)) {
	t.Run("goroutines", func(t *testing.T) { test(t, &driving{}) })
	t.Run("loop", func(t *testing.T) { test(t, ofLoop()) })
}

func (d *driving) onLoop() bool { return d.loops != nil }

// networks are those that the driver takes: a loop takes plain sockets only.
func (d *driving) networks() map[string]network {
	if d.onLoop() {
		return map[string]network{"tcp": tcp, "unix": unixStream}
	}
	return networks
}

// newRig starts a session. The test must end it; wait returns what it did.
func (d *driving) newRig(t testing.TB, r *relay.Relay, a, b network) *rig {
	t.Helper()
	g := &rig{t: t, done: make(chan struct{})}
	var nearA, nearB net.Conn
	g.A, nearA = a(t)
	g.B, nearB = b(t)
	_ = g.A.SetDeadline(time.Now().Add(patience))
	_ = g.B.SetDeadline(time.Now().Add(patience))
	if d.onLoop() {
		on := d.looped(t, r)
		if on.run(g, nearA, nearB, d.limits); d.proven {
			on.do(g.session.(*loopSession).driven.Prove)
		}
	} else {
		ctx, cancel := context.WithCancelCause(context.Background())
		g.cancel = cancel
		g.near = [2]near{control(t, nearA), control(t, nearB)}
		s := r.NewSession(nearA, nearB)
		s.Limit(d.limits)
		if d.proven {
			s.Prove()
		}
		g.session = s
		go g.run(ctx, s)
	}
	t.Cleanup(func() {
		g.cancel(errors.New("test is over"))
		<-g.done
	})
	return g
}

// control lends out the descriptor of a connection that a session on goroutines has.
func control(t testing.TB, c net.Conn) near {
	return func(f func(fd int)) {
		raw, err := c.(syscall.Conn).SyscallConn()
		if err == nil {
			err = raw.Control(func(fd uintptr) { f(int(fd)) })
		}
		if err != nil {
			t.Error(err)
		}
	}
}

// newRig is for what only goroutines can drive.
func newRig(t testing.TB, r *relay.Relay, a, b network) *rig {
	t.Helper()
	return new(driving).newRig(t, r, a, b)
}

// holds is what the sessions of r hold: pipes, and buffers with bytes in them.
func (d *driving) holds(t testing.TB, r *relay.Relay) (pipes, buffers int64) {
	t.Helper()
	s := r.Stats()
	pipes, buffers = s.Pipes.Leased, s.Buffers.Live
	if d.onLoop() {
		on := d.looped(t, r)
		on.do(func() {
			for _, s := range on.sessions {
				buffers += s.driven.Buffers()
			}
		})
	}
	return pipes, buffers
}

// raised is how many directions of r have their low-water mark raised.
func (d *driving) raised(t testing.TB, r *relay.Relay) (n int) {
	t.Helper()
	if !d.onLoop() {
		return r.Raised()
	}
	on := d.looped(t, r)
	on.do(func() { n = on.driver.Raised() })
	return n
}

// clockedRelay is a relay with sessions that read the time from a clock of the
// test's.
func (d *driving) clockedRelay(t *testing.T, cfg relay.Config) (*relay.Relay, *fakeClock) {
	t.Helper()
	r := newRelay(t, &cfg)
	d.clock = &fakeClock{t: time.Hour}
	r.SetClock(d.clock.now, d.clock.afterFunc)
	return r, d.clock
}
