package relay_test

import (
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/relay"
)

func (s *loopSession) Look() (t relay.Turn) {
	s.on.do(func() { t = s.driven.Look() })
	return t
}

// ask moves a byte from A to B, and waits until that is counted.
func (g *rig) ask() {
	g.t.Helper()
	before := g.session.Result().AToB.Bytes()
	must.Do(g.t, ping(g.A, g.B, 1))
	g.until("the question is counted", func(res relay.Result) bool { return res.AToB.Bytes() > before })
}

// begun returns when the session has begun, some time ago.
func begun(c *fakeClock, g *rig) {
	for g.session.Result().Duration == 0 {
		c.advance(time.Millisecond)
	}
}

// expectTurn looks. Asked and Waited are noted in ticks: they may be less, or more, by one.
func expectTurn(t *testing.T, g *rig, want relay.Turn) {
	t.Helper()
	const tick = 135 * time.Millisecond
	near := func(got, want time.Duration) bool {
		return (got != 0) == (want != 0) && max(got-want, want-got) <= tick
	}
	got := g.session.(*loopSession).Look()
	if got.Last != want.Last || got.Ended != want.Ended || got.Quiet != want.Quiet || got.Spoke != want.Spoke || got.Answered != want.Answered ||
		!near(got.Asked, want.Asked) || !near(got.Waited, want.Waited) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// TestTurn: whose turn it is, and since when, from look to look.
func TestTurn(t *testing.T) {
	t.Parallel()

	d := ofLoop()
	const s = time.Second
	r, c := d.clockedRelay(t, relay.Config{IdleTimeout: time.Hour})
	g := d.newRig(t, r, tcp, tcp)
	begun(c, g)
	c.advance(s)
	began := g.session.Result().Duration
	expectTurn(t, g, relay.Turn{Quiet: began, Asked: began})
	g.ask()
	c.advance(2 * s)
	expectTurn(t, g, relay.Turn{Last: relay.SideA, Quiet: 2 * s, Asked: 2 * s})
	c.advance(s)
	expectTurn(t, g, relay.Turn{Last: relay.SideA, Quiet: 3 * s, Asked: 3 * s})
	g.ask() // it goes on, and is not answered for that
	expectTurn(t, g, relay.Turn{Last: relay.SideA, Asked: 3 * s})
	c.advance(s)
	g.answer()
	c.advance(s)
	expectTurn(t, g, relay.Turn{Last: relay.SideB, Quiet: s, Answered: true, Waited: 5 * s})
	c.advance(s)
	expectTurn(t, g, relay.Turn{Last: relay.SideB, Quiet: 2 * s, Spoke: true})
	g.answer() // to nothing: it streams
	expectTurn(t, g, relay.Turn{Last: relay.SideB, Spoke: true})
	g.ask()
	c.advance(s)
	g.answer()
	expectTurn(t, g, relay.Turn{Last: relay.SideB, Spoke: true, Answered: true})
}

// TestTurnAgain: a question that follows an answer, both since the look before, is a new one.
func TestTurnAgain(t *testing.T) {
	t.Parallel()

	const s = time.Second
	d := ofLoop()
	r, c := d.clockedRelay(t, relay.Config{})
	g := d.newRig(t, r, tcp, tcp)
	g.ask()
	c.advance(5 * s)
	expectTurn(t, g, relay.Turn{Last: relay.SideA, Quiet: 5 * s, Asked: 5 * s})
	g.answer()
	c.advance(s)
	g.ask()
	c.advance(2 * s)
	expectTurn(t, g, relay.Turn{Last: relay.SideA, Quiet: 2 * s, Asked: 2 * s, Answered: true, Waited: 8 * s})
}

// TestTurnEnds: a second side that has ended is not asked any more; a first side that has asked and then ends still waits for an answer.
func TestTurnEnds(t *testing.T) {
	t.Parallel()

	d := ofLoop()
	const s = time.Second
	r, c := d.clockedRelay(t, relay.Config{IdleTimeout: time.Hour})
	g := d.newRig(t, r, tcp, tcp)
	g.ask()
	c.advance(s)
	must.Do(t, g.B.CloseWrite())
	g.until("the end is noted", func(res relay.Result) bool { return res.BToA.Reason == relay.ReasonEOF })
	expectTurn(t, g, relay.Turn{Quiet: s})

	r, c = d.clockedRelay(t, relay.Config{IdleTimeout: time.Hour, HalfCloseTimeout: time.Hour})
	g = d.newRig(t, r, tcp, tcp)
	g.ask()
	c.advance(2 * s)
	expectTurn(t, g, relay.Turn{Last: relay.SideA, Quiet: 2 * s, Asked: 2 * s})
	must.Do(t, g.A.CloseWrite())
	g.until("the end is noted", func(relay.Result) bool { return g.session.HalfOpen() })
	c.advance(s)
	expectTurn(t, g, relay.Turn{Last: relay.SideA, Ended: true, Quiet: s, Asked: 3 * s})
}

// TestFirstByteTold: the second side's first byte, and no other, is told, with the time since
// the question, or since the beginning if there was none.
func TestFirstByteTold(t *testing.T) {
	both(t, func(t *testing.T, d *driving) {
		const s = time.Second
		for name, cfg := range map[string]relay.Config{"with timeouts": {IdleTimeout: time.Hour}, "without": {}} {
			t.Run(name, func(t *testing.T) {
				r, c := d.clockedRelay(t, cfg)
				var mu sync.Mutex
				type first struct {
					took  time.Duration
					asked bool
				}
				var told []first
				d.limits = &relay.Limits{IdleTimeout: cfg.IdleTimeout, FirstByteCame: func(took time.Duration, asked bool) {
					mu.Lock()
					defer mu.Unlock()
					told = append(told, first{took, asked})
				}}
				expectTold := func(want ...first) {
					t.Helper()
					mu.Lock()
					defer mu.Unlock()
					if !slices.Equal(told, want) {
						t.Errorf("told %v, want %v", told, want)
					}
				}
				asked, greeted := d.newRig(t, r, tcp, tcp), d.newRig(t, r, tcp, tcp)
				begun(c, asked)
				begun(c, greeted)
				c.advance(5 * s)
				since := greeted.session.Result().Duration
				asked.ask()
				c.advance(2 * s)
				expectTold()
				asked.answer()
				expectTold(first{2 * s, true})
				asked.ask()
				c.advance(s)
				asked.answer()
				greeted.answer()
				greeted.ask()
				c.advance(s)
				greeted.answer()
				expectTold(first{2 * s, true}, first{since + 3*s, false})
			})
		}
	})
}

func (g *rig) quiet() (is bool) {
	l := g.session.(*loopSession)
	l.on.do(func() { is = l.driven.Quiet() })
	return is
}

// TestQuiet: a session is quiet when no byte is on its way, and no question is open.
func TestQuiet(t *testing.T) {
	t.Parallel()

	d := ofLoop()
	for name, of := range map[string]network{"tcp": tcp, "unix": unixStream} {
		t.Run(name, func(t *testing.T) { testQuiet(t, d, of) })
	}
}

func testQuiet(t *testing.T, d *driving, of network) {
	r, c := d.clockedRelay(t, relay.Config{Engine: relay.EngineCopy})
	g := d.newRig(t, r, of, of)
	begun(c, g)
	expect := func(want bool, when string) {
		t.Helper()
		condition.Await(t, fmt.Sprintf("%s: quiet is %v", when, want), func() bool { return g.quiet() == want })
	}
	expect(true, "nothing was sent")
	g.ask()
	if g.quiet() {
		t.Error("a session with an open question is quiet")
	}
	for range 70 { // however long the question is
		g.ask()
	}
	if g.quiet() {
		t.Error("a session with a long question is quiet")
	}
	must.Do(t, ping(g.B, g.A, 2))
	expect(true, "the question is answered")

	// A client that does not read leaves bytes on their way, whoever holds them.
	sent := fillUp(t, g.B)
	if g.quiet() {
		t.Error("a session with bytes on their way is quiet")
	}
	must.Get(io.CopyN(io.Discard, g.A, sent))(t)
	expect(true, "the bytes have come")
	_ = g.A.CloseWrite()
	_ = g.B.CloseWrite()
	g.wait()
	if g.quiet() {
		t.Error("a session that has ended is quiet")
	}
}

// TestWaits: every moment counts for what the session waited for then, once.
func TestWaits(t *testing.T) {
	both(t, func(t *testing.T, d *driving) {
		r, c := d.clockedRelay(t, relay.Config{LegsAfter: time.Nanosecond})
		g := d.newRig(t, r, smallTCP, smallTCP)
		message := make([]byte, 1000)
		want := relay.Waits{}
		check := func(after string) {
			t.Helper()
			if got := g.session.Result().Waits; !near4(got, want) {
				t.Fatalf("after %s: %+v, want %+v", after, got, want)
			}
		}
		pass(t, g.A, g.B, message) // it runs
		c.advance(300 * time.Millisecond)
		pass(t, g.A, g.B, message)
		want.ForA = 300 * time.Millisecond
		check("a pause of the first side")
		c.advance(3 * time.Second)
		pass(t, g.B, g.A, message)
		want.ForB = 3 * time.Second
		check("an answer")
		c.advance(5 * time.Second)
		pass(t, g.A, g.B, message)
		check("a quiet time")
		c.advance(400 * time.Millisecond)
		pass(t, g.A, g.B, message)
		want.ForA += 400 * time.Millisecond
		check("more of the question")

		sent := g.fill(d, r)
		c.advance(3 * time.Second)
		if d.onLoop() { // there a wait counts while it goes on
			want.ToB = 3 * time.Second
			check("a sink that is full")
		}
		must.Get(io.CopyN(io.Discard, g.B, sent))(t)
		want.ToB = 3 * time.Second
		g.until("the wait for room is over", func(res relay.Result) bool {
			return res.AToB.Bytes() == int64(4*len(message))+sent && near4(res.Waits, want)
		})
		c.advance(7 * time.Second)
		_ = g.A.CloseWrite()
		_ = g.B.CloseWrite()
		res := must.Get(g.wait())(t)
		want.ForB += 7 * time.Second // which has never answered
		if !near4(res.Waits, want) {
			t.Errorf("at the end: %+v, want %+v", res.Waits, want)
		}
		if l := res.Legs; l == nil || !l.A.Known || !l.B.Known || l.A.Received < res.AToB.Bytes() || l.A.Sent != 1000 || l.B.Sent < res.AToB.Bytes() {
			t.Errorf("legs %+v", l)
		}
	})
}

// near4 compares waits to some ticks.
func near4(got, want relay.Waits) bool {
	const slack = 2 * time.Millisecond
	near := func(a, b time.Duration) bool { return (a - b).Abs() < slack }
	return near(got.ForA, want.ForA) && near(got.ForB, want.ForB) && near(got.ToA, want.ToA) && near(got.ToB, want.ToB) &&
		near(got.Bandwidth, want.Bandwidth) && near(got.Loop, want.Loop)
}

// fill sends from A until the session holds bytes for B and the kernel's queues take no more, and returns how many it sent.
func (g *rig) fill(d *driving, r *relay.Relay) (sent int64) {
	wrote := make(chan int64)
	go func() {
		n, chunk := int64(0), make([]byte, 64<<10)
		for {
			some, err := g.A.Write(chunk)
			n += int64(some)
			if err != nil {
				wrote <- n
				return
			}
		}
	}()
	before, stands := int64(-1), 0
	g.until("bytes are held", func(res relay.Result) bool {
		pipes, buffers := d.holds(g.t, r)
		if stands++; res.AToB.Bytes() != before || pipes+buffers == 0 {
			before, stands = res.AToB.Bytes(), 0
		}
		return stands > 20
	})
	must.Do(g.t, g.A.SetWriteDeadline(time.Now()))
	sent = <-wrote
	must.Do(g.t, g.A.SetWriteDeadline(time.Time{}))
	return sent
}

// TestWaitsForBandwidth: to wait for bandwidth is neither to wait for bytes nor for room. (Goroutines see the
// test's clock at moments of their own.)
func TestWaitsForBandwidth(t *testing.T) {
	t.Parallel()

	d := ofLoop()
	r, c := d.clockedRelay(t, relay.Config{LegsAfter: time.Hour})
	d.limits = &relay.Limits{PerConnection: relay.Rates{Both: 100_000, Burst: 20_000}}
	g := d.newRig(t, r, tcp, tcp)
	write(t, g.A, make([]byte, 1<<20))
	go io.Copy(io.Discard, g.B)
	begin := c.now()
	for range 100 {
		bytes := 100_000 * int64(c.now()-begin) / 1e9
		g.until("the rate is used", func(res relay.Result) bool { return res.AToB.Bytes() >= bytes })
		c.advance(10 * time.Millisecond)
	}
	res := g.session.Result()
	if res.Waits.Bandwidth < 700*time.Millisecond || res.Waits.Bandwidth > res.Duration {
		t.Errorf("%+v of %v", res.Waits, res.Duration)
	}
	if res.Legs != nil {
		t.Error("a session that runs has legs")
	}
}

// TestLegs: those of a session that runs are known if they are TCP.
func TestLegs(t *testing.T) {
	both(t, func(t *testing.T, d *driving) {
		r := newRelay(t, nil)
		g := d.newRig(t, r, tcp, unixStream)
		pass(t, g.A, g.B, make([]byte, 1000))
		l := g.legs()
		if !l.A.Known || l.A.Received != 1000 || l.A.MinRTT == 0 || l.A.OutOfOrder != 0 {
			t.Errorf("TCP: %+v", l.A)
		}
		if l.B != (relay.Leg{}) {
			t.Errorf("unix: %+v", l.B)
		}
		_ = g.A.CloseWrite()
		_ = g.B.CloseWrite()
		if res, err := g.wait(); err != nil || res.Legs != nil {
			t.Errorf("%v, legs %v without being asked", err, res.Legs)
		}
		if l := g.legs(); l != (relay.Legs{}) {
			t.Errorf("after the end: %+v", l)
		}
	})
}

func (g *rig) legs() (l relay.Legs) {
	if s, ok := g.session.(*loopSession); ok {
		s.on.do(func() { l = s.driven.Legs() })
		return l
	}
	return g.session.(*relay.Session).Legs()
}

// TestSessionIdle: how long nothing has moved is known where there is a timeout for
// that.
func TestSessionIdle(t *testing.T) {
	t.Parallel()

	for cfg, want := range map[[2]time.Duration]bool{{time.Hour, 0}: true, {0, time.Hour}: true, {}: false} {
		timeout, legs := cfg[0], cfg[1]
		r, clock := clockedRelay(t, relay.Config{Engine: relay.EngineCopy, IdleTimeout: timeout, LegsAfter: legs})
		a, nearA := tcp(t)
		b, nearB := tcp(t)
		s := r.NewSession(nearA, nearB)
		if _, known := s.Idle(); known {
			t.Error("it is known before it runs")
		}
		ended := start(t, s)
		idle := func(want time.Duration, known bool) {
			t.Helper()
			if d, k := s.Idle(); d != want || k != known {
				t.Errorf("with times of %v: %v, %v, want %v, %v", cfg, d, k, want, known)
			}
		}
		clock.advance(3 * time.Second)
		if want {
			idle(3*time.Second, true)
		} else {
			idle(0, false)
		}
		write(t, a, []byte("hello"))
		readFull(t, b, make([]byte, 5))
		for begin := time.Now(); want && time.Since(begin) < condition.Patience; time.Sleep(time.Millisecond) { // it is noted after the byte was sent
			if d, _ := s.Idle(); d == 0 {
				break
			}
		}
		clock.advance(2 * time.Second)
		if want {
			idle(2*time.Second, true)
		}
		_ = a.CloseWrite()
		_ = b.CloseWrite()
		if o := end(t, ended); o.err != nil {
			t.Error(o.err)
		}
	}
}
