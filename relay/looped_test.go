package relay_test

import (
	"errors"
	"net"
	"reflect"
	"syscall"
	"testing"

	"github.com/penstock/penstock/arena"
	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/relay"
)

// A looped is a loop that drives the sessions of one relay. When the test is over
// nothing must be left on it, nor of its arena.
type looped struct {
	t      testing.TB
	loop   *loop.Loop
	driver *relay.Driver
	arena  *arena.Arena
	ran    chan error

	sessions []*loopSession // all that were started; the loop's
}

// looped returns the loop that drives r's sessions.
func (d *driving) looped(t testing.TB, r *relay.Relay) *looped {
	t.Helper()
	if d.loops[r] == nil {
		cfg := &loop.Config{}
		if clock := d.clock; clock != nil {
			cfg.Now = func() int64 { return int64(clock.now()) }
		}
		on := newLooped(t, r, cfg, &arena.Config{Locals: 1})
		if d.clock != nil {
			d.clock.advanced = append(d.clock.advanced, on.turn)
		}
		d.loops[r] = on
		t.Cleanup(func() { delete(d.loops, r) }) // a subtest's loop ends with it
	}
	return d.loops[r]
}

// newLooped makes and runs a loop. It ends with the test, before the relay.
func newLooped(t testing.TB, r *relay.Relay, cfg *loop.Config, memory *arena.Config) *looped {
	t.Helper()
	l, err := loop.New(cfg)
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	mem, err := arena.New(memory)
	if err != nil {
		t.Fatal(err)
	}
	d, err := r.NewDriver(l, mem.Local(0))
	if err != nil {
		t.Fatal(err)
	}
	on := &looped{t: t, loop: l, driver: d, arena: mem, ran: make(chan error, 1)}
	go func() { on.ran <- l.Run() }()
	t.Cleanup(on.close)
	return on
}

func (on *looped) close() {
	on.loop.Stop()
	if err := <-on.ran; err != nil {
		on.t.Error(err)
	}
	if n := on.driver.Sessions(); n != 0 {
		on.t.Errorf("%d sessions are left", n)
	}
	if n := registered(on.loop); n != 0 {
		on.t.Errorf("%d descriptors are left on the loop", n)
	}
	if err := on.driver.Close(); err != nil {
		on.t.Error(err)
	}
	on.arena.Local(0).Flush()
	if s := on.arena.Stats(); s.ByPurpose[arena.Residue].Out != 0 || s.Stale != 0 {
		on.t.Errorf("arena: %+v", s)
	}
	if err := errors.Join(on.arena.Close(), on.loop.Close()); err != nil {
		on.t.Error(err)
	}
}

// registered is how many slots of a loop's table are in use.
func registered(l *loop.Loop) int64 {
	return reflect.ValueOf(l).Elem().FieldByName("table").FieldByName("used").Int()
}

// ofLoop makes a driving of a loop alone.
func ofLoop() *driving { return &driving{loops: map[*relay.Relay]*looped{}} }

// do runs f on the loop and waits for its end.
func (on *looped) do(f func()) {
	done := make(chan struct{})
	if err := on.loop.Post(func() { f(); close(done) }); err != nil {
		on.t.Errorf("post: %v", err)
		return
	}
	<-done
}

// turn waits until a whole turn has begun and ended, its timers included: one that
// is posted from outside while a turn runs is called in the next.
func (on *looped) turn() {
	for range 3 {
		on.do(func() {})
	}
}

// A loopSession is a session on a loop, seen from other goroutines.
type loopSession struct {
	on     *looped
	driven relay.Driven
	limits *relay.Limits
	ended  func(relay.Result, error)
}

func (s *loopSession) Ended(_ *relay.Driven, res relay.Result, err error) { s.ended(res, err) }

func (s *loopSession) Result() (res relay.Result) {
	s.on.do(func() { res = s.driven.Result() })
	return res
}

func (s *loopSession) HalfOpen() (half bool) {
	s.on.do(func() { half = s.driven.HalfOpen() })
	return half
}

func (s *loopSession) Guarded() (both [2]bool) {
	s.on.do(func() { both = s.driven.Guarded() })
	return both
}

func (s *loopSession) Limits() (l *relay.Limits) {
	s.on.do(func() { l = s.driven.Limits() })
	return l
}

func (s *loopSession) cut(cause error) { s.on.do(func() { s.driven.Cut(cause) }) }

// run starts the session of a rig.
func (on *looped) run(g *rig, nearA, nearB net.Conn, limits *relay.Limits) {
	s := &loopSession{on: on, limits: limits, ended: func(res relay.Result, err error) {
		g.result, g.err = res, err
		close(g.done)
	}}
	g.session, g.cancel = s, s.cut
	a, b := on.take(nearA), on.take(nearB)
	for i, fd := range []int{a.FD, b.FD} {
		g.near[i] = func(f func(fd int)) { on.do(func() { f(fd) }) }
	}
	on.start(s, a, b)
}

// start starts a session of two sockets that are not registered yet.
func (on *looped) start(s *loopSession, a, b relay.Socket) {
	var err error
	on.do(func() {
		var errA, errB error
		a.ID, errA = on.loop.Add(a.FD, 0, &s.driven)
		b.ID, errB = on.loop.Add(b.FD, 1, &s.driven)
		if err = errors.Join(errA, errB); err == nil {
			on.sessions = append(on.sessions, s)
			on.driver.StartLimited(&s.driven, a, b, s, s.limits)
		}
	})
	if err != nil {
		on.t.Fatal(err)
	}
}

// take takes a connection out of the runtime's hands.
func (on *looped) take(c net.Conn) relay.Socket {
	fd, err := loop.Take(c.(syscall.Conn))
	if err != nil {
		on.t.Fatal(err)
	}
	_, isTCP := c.(*net.TCPConn)
	return relay.Socket{FD: fd, TCP: isTCP}
}
