package relay_test

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/relay"
)

// A steward is a Carrier that takes the session as soon as it can, and moves what it is told to.
type steward struct {
	thief
	clock *fakeClock
	last  time.Duration // when it has moved something last
	reset int
}

func (c *steward) Progress() (aToB, bToA int64, idle time.Duration) {
	return c.ab, c.ba, c.clock.now() - c.last
}

func (c *steward) Reset() { c.reset++ }

func (c *steward) Return() bool { return false }

// A parking is a session that leaves, and that may be parked whenever it is away. Both kinds keep the same log.
type parking struct {
	*testing.T
	parks   bool
	on      *looped
	clock   *fakeClock
	s       *loopSession
	driven  *relay.Driven // where the session is, unless it is parked
	parked  relay.Parked
	carrier *steward
	A, B    halfConn
	near    [2]int // their peers' descriptors, after back
	folds   bool
	log     []string
	over    chan struct{}
}

func newParking(t *testing.T, parks bool, limits *relay.Limits) *parking {
	d := ofLoop()
	r, clock := d.clockedRelay(t, relay.Config{})
	p := &parking{T: t, parks: parks, clock: clock, on: d.looped(t, r), over: make(chan struct{})}
	p.s = &loopSession{on: p.on, ended: func(res relay.Result, err error) {
		p.note("ended %+v, %v", p.folded(res), err)
		close(p.over)
	}}
	p.driven = &p.s.driven
	p.A, p.B = pairOn(t, p.on, func(a, b relay.Socket) { p.on.driver.StartLimited(p.driven, a, b, p.s, limits) }, p.s)
	return p
}

func (p *parking) note(format string, args ...any) {
	p.log = append(p.log, fmt.Sprintf("%v: ", p.clock.now())+fmt.Sprintf(format, args...))
}

// talk moves a few bytes both ways, with pauses.
func (p *parking) talk(times int, pause time.Duration) {
	p.Helper()
	for range times {
		must.Do(p, errors.Join(ping(p.A, p.B, 5), ping(p.B, p.A, 3)))
		if pause > 0 {
			p.on.turn()
			p.clock.advance(pause)
		}
	}
	p.on.turn()
}

// bulk moves so much that some of it is spliced.
func (p *parking) bulk() {
	p.Helper()
	const size = 16 << 20
	go func() { _, _ = p.A.Write(make([]byte, size)) }()
	must.Get(io.CopyN(io.Discard, p.B, size))(p)
	p.on.turn()
	p.on.do(func() {
		if n := p.driven.Result().AToB.Spliced; n == 0 {
			p.Error("nothing is spliced")
		}
	})
	p.folds = true
}

// folded returns a result without what is another one each time: how much of many bytes was spliced.
func (p *parking) folded(r relay.Result) relay.Result {
	if p.folds {
		r.AToB.Copied, r.AToB.Spliced = r.AToB.Copied+r.AToB.Spliced, 0
	}
	return r
}

// leave has the session leave, with the next byte, and parks it.
func (p *parking) leave() {
	p.Helper()
	c := &steward{thief: thief{takes: true, has: make(chan struct{})}, clock: p.clock, last: p.clock.now()}
	if p.carrier != nil { // Carriers go on counting
		c.ab, c.ba = p.carrier.ab, p.carrier.ba
	}
	p.carrier = c
	p.on.do(func() { p.driven.Offer(c) })
	write(p, p.A, "x")
	<-c.has
	p.on.turn()
	p.on.do(p.park)
}

// park is called on the loop.
func (p *parking) park() {
	if p.parks && p.driven.Carried() && p.driven.Park(&p.parked) {
		p.driven = nil
	}
}

// session returns the session where it can be changed. It is called on the loop.
func (p *parking) session() *relay.Driven {
	if p.driven == nil {
		p.driven = new(relay.Driven)
		if !p.on.driver.Unpark(p.driven, &p.parked, p.s, p.carrier) {
			p.Error("it is not unparked")
		}
	}
	return p.driven
}

// look notes what there is to be seen. It is called on the loop.
func (p *parking) look() {
	if p.driven != nil {
		p.note("%+v, idle %v, timeouts %+v", p.folded(p.driven.Result()), p.driven.Idle(), p.driven.Limits())
		return
	}
	d := p.on.driver
	p.note("%+v, idle %v, timeouts %+v", p.folded(p.parked.Result(d, p.carrier)), p.parked.Idle(d, p.carrier), p.parked.Limits())
}

// rest lets time pass, in which the Carrier moves something now and then.
func (p *parking) rest(d time.Duration, moves ...time.Duration) {
	const step = 250 * time.Millisecond
	for passed := time.Duration(0); passed < d; passed += step {
		p.on.do(func() {
			if slices.Contains(moves, passed) {
				p.carrier.ab, p.carrier.last = p.carrier.ab+10, p.clock.now()
			}
			p.look()
			if p.driven == nil {
				if left, has := p.parked.Timeout(p.on.driver, p.carrier); has && left <= step {
					p.session()
				}
			}
		})
		p.clock.advance(step)
		ended := false
		select {
		case <-p.over:
			ended = true
		default:
		}
		p.on.do(func() {
			if p.carrier.reset > 0 && !ended { // as a Carrier does soon after
				p.carrier.reset = 0
				p.session().Finish(true, relay.SideNone)
				ended = true
			} else if !ended && p.driven != nil {
				p.park()
			}
		})
		if ended {
			return
		}
	}
}

// back has the session go on with other sockets.
func (p *parking) back(ended [2]bool, last relay.Side) {
	p.Helper()
	p.on.do(func() { p.session() })
	A, nearA := tcp(p)
	B, nearB := tcp(p)
	a, b := p.on.take(nearA), p.on.take(nearB)
	p.on.do(func() {
		a.ID, _ = p.on.loop.Add(a.FD, 0, p.driven)
		b.ID, _ = p.on.loop.Add(b.FD, 1, p.driven)
		if !p.driven.Return(a, b, ended, last) {
			p.Error("it does not return")
		}
	})
	p.A, p.B = A, B
	p.near = [2]int{int(a.FD), int(b.FD)}
	p.on.turn()
}

// acknowledged waits until the peers have acknowledged everything: what they have not would be lost with a cut.
func (p *parking) acknowledged() {
	p.Helper()
	p.until("everything is acknowledged", func() bool {
		return must.Get(sys.SIOCOUTQ(p.near[0]))(p) == 0 && must.Get(sys.SIOCOUTQ(p.near[1]))(p) == 0
	})
}

// until waits until holds returns true on the loop.
func (p *parking) until(what string, holds func() bool) {
	p.Helper()
	condition.Await(p, what, func() (yes bool) {
		p.on.do(func() { yes = holds() })
		return yes
	})
}

func (p *parking) finish(reset bool, by relay.Side) {
	p.on.do(func() { p.session().Finish(reset, by) })
}

// TestParked: a session that is parked whenever it is away is seen, times out and ends as one that never is.
func TestParked(t *testing.T) {
	t.Parallel()

	const second = time.Second
	for _, c := range []struct {
		name   string
		limits *relay.Limits
		course func(p *parking)
	}{
		{"both have ended", nil, func(p *parking) { p.rest(second, 0, second/2); p.finish(false, relay.SideA) }},
		{"the endpoint resets", nil, func(p *parking) { p.rest(second); p.finish(true, relay.SideB) }},
		{"nobody knows who", nil, func(p *parking) { p.finish(true, relay.SideNone) }},
		{"a side fails", nil, func(p *parking) {
			p.on.do(func() { p.session().FinishError(relay.SideB, syscall.ETIMEDOUT) })
		}},
		{"it is cut", nil, func(p *parking) {
			p.on.do(func() { p.session().Cut(io.ErrNoProgress) })
			p.rest(second)
		}},
		{"half of it", &relay.Limits{HalfCloseTimeout: second}, func(p *parking) {
			p.rest(second)
			p.on.do(func() { p.session().HalfEnded(relay.SideB); p.park() })
			p.rest(5*second, second/2)
		}},
		{"half of it, and the other", nil, func(p *parking) {
			p.on.do(func() { p.session().HalfEnded(relay.SideA); p.park() })
			p.on.do(func() { p.session().HalfEnded(relay.SideB); p.park() })
			p.finish(false, relay.SideB)
		}},
		{"idle", &relay.Limits{IdleTimeout: 3 * second}, func(p *parking) { p.rest(20*second, second, 2*second, 4500*time.Millisecond) }},
		{"lifetime", &relay.Limits{MaxLifetime: 9 * second, IdleTimeout: 5 * second}, func(p *parking) { p.rest(20*second, 2*second, 4*second, 6*second) }},
		{"a lifetime of its own", &relay.Limits{MaxLifetime: 9 * second, LifetimeJitter: 1}, func(p *parking) { p.rest(20 * second) }},
		{"it comes back", &relay.Limits{IdleTimeout: 3 * second}, func(p *parking) {
			p.rest(second, 0)
			p.back([2]bool{}, relay.SideA)
			p.talk(3, second/10)
			p.on.do(p.look)
			p.A.Close()
			p.until("A has ended", func() bool { return p.driven.Result().AToB.Reason == relay.ReasonEOF })
			p.B.Close()
			<-p.over
		}},
		{"it comes back, and leaves", &relay.Limits{IdleTimeout: 3 * second}, func(p *parking) {
			for range 2 {
				p.rest(second, 0)
				p.back([2]bool{}, relay.SideB)
				p.talk(3, second/10)
				p.leave()
			}
			p.rest(second, 0)
			p.finish(true, relay.SideA)
		}},
		{"half of it comes back", nil, func(p *parking) {
			p.rest(second, 0)
			p.back([2]bool{false, true}, relay.SideNone)
			must.Do(p, ping(p.A, p.B, 5))
			p.on.turn()
			p.on.do(p.look)
			p.on.do(func() { p.driven.Cut(io.ErrNoProgress) })
		}},
		{"long before it left", nil, func(p *parking) {
			p.back([2]bool{}, relay.SideA)
			p.talk(20, second)
			p.talk(300, 0)
			p.leave()
			p.rest(second)
			p.finish(false, relay.SideA)
		}},
		{"much before it left", nil, func(p *parking) {
			p.back([2]bool{}, relay.SideA)
			p.bulk()
			p.leave()
			p.rest(second)
			p.back([2]bool{}, relay.SideA)
			p.talk(3, 0)
			p.acknowledged()
			p.on.do(func() { p.driven.Cut(io.ErrNoProgress) })
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var logs [2][]string
			for i, parks := range [2]bool{false, true} {
				p := newParking(t, parks, c.limits)
				p.talk(2, 10*time.Millisecond)
				p.leave()
				p.on.do(func() {
					if parks != (p.driven == nil) {
						t.Errorf("parked: %v", p.driven == nil)
					}
				})
				c.course(p)
				condition.Receive(t, "it ends", p.over)
				logs[i] = p.log
			}
			if !slices.Equal(logs[0], logs[1]) {
				for i, line := range logs[0] {
					if i >= len(logs[1]) || line != logs[1][i] {
						t.Fatalf("line %d: %q, and parked %q", i, line, logs[1][min(i, len(logs[1])-1)])
					}
				}
				t.Fatalf("and parked: %q", logs[1][len(logs[0]):])
			}
		})
	}
}

// TestNotParked: a session stays a Driven that no Carrier has, that is being reset, or whose first byte is awaited; and nothing is unparked
// that is no session, nor into one.
func TestNotParked(t *testing.T) {
	t.Parallel()

	var zero relay.Driven
	var parked relay.Parked
	if zero.Park(&parked) {
		t.Error("a zero Driven is parked")
	}
	p := newParking(t, false, &relay.Limits{FirstByte: time.Minute})
	d := p.on.driver
	refuses := func(when string) {
		t.Helper()
		if p.driven.Park(&p.parked) {
			t.Error("it is parked", when)
		}
	}
	p.on.do(func() {
		refuses("in user space")
		if d.Unpark(new(relay.Driven), &p.parked, p.s, p.carrier) {
			t.Error("a zero Parked is unparked")
		}
		if left, has := p.parked.Timeout(d, nil); has || left != 0 || p.parked.Limits() != nil || p.parked.Idle(d, nil) != 0 || p.parked.Result(d, nil).Duration != 0 {
			t.Error("a zero Parked is a session")
		}
	})
	p.leave()
	p.on.do(func() { refuses("and may not answer") })
	p.on.do(func() { p.driven.Cut(io.ErrNoProgress); refuses("while it is reset") })
	p.finish(true, relay.SideNone)
	p.on.do(func() { refuses("after its end") })

	other := newParking(t, true, nil)
	other.talk(1, 0)
	other.leave()
	running := newPlain(t, other.on)
	other.on.do(func() {
		if other.driven != nil {
			t.Fatal("it is not parked")
		}
		running.start()
		if other.on.driver.Unpark(&running.s.driven, &other.parked, other.s, other.carrier) {
			t.Error("it takes the place of another session")
		}
		running.s.driven.Cut(io.ErrNoProgress)
		if other.on.driver.Sessions() != 1 {
			t.Errorf("%d sessions", other.on.driver.Sessions())
		}
	})
	other.finish(false, relay.SideA)
}

// TestLifetimeIsDrawnOnce: a session that comes back has the lifetime that it has drawn at its begin, though its sockets are others, parked
// or not, as often as it comes back.
func TestLifetimeIsDrawnOnce(t *testing.T) {
	t.Parallel()

	for _, parks := range []bool{false, true} {
		p := newParking(t, parks, &relay.Limits{MaxLifetime: time.Hour, LifetimeJitter: 1})
		left := func() (left time.Duration) {
			p.on.do(func() {
				if p.driven != nil {
					left = p.driven.Left()
				} else {
					left, _ = p.parked.Timeout(p.on.driver, p.carrier)
				}
			})
			return left
		}
		p.talk(1, 0)
		want := left()
		for round := range 3 {
			p.leave()
			if got := left(); got != want {
				t.Errorf("parked %v, away for the %d. time: %v left, want %v", parks, round+1, got, want)
			}
			p.back([2]bool{}, relay.SideA)
			p.talk(1, 0)
			if got := left(); got != want {
				t.Errorf("parked %v, back for the %d. time: %v left, want %v", parks, round+1, got, want)
			}
		}
		p.on.do(func() { p.driven.Cut(io.ErrNoProgress) })
		<-p.over
	}
}

// A thief is a Carrier that takes the session as soon as it can, if it is to.
type thief struct {
	takes  bool
	has    chan struct{}
	ab, ba int64
	quiet  bool
}

func (c *thief) Arm()         {}
func (c *thief) Disarm() bool { return !c.takes }
func (c *thief) Quiet() bool  { return c.quiet }
func (c *thief) Reset()       {}
func (c *thief) Return() bool { return false }

func (c *thief) Leave(a, b int) {
	_, _ = syscall.Close(a), syscall.Close(b)
	close(c.has)
}

func (c *thief) Progress() (aToB, bToA int64, idle time.Duration) { return c.ab, c.ba, 0 }

// TestReturn: a session that a Carrier has had goes on with other sockets, its bytes added up, as often as it comes back. A direction
// that has ended meanwhile is not relayed any more, and the other one goes on to its end.
func TestReturn(t *testing.T) {
	t.Parallel()

	on := ofLoop().looped(t, newRelay(t, nil))
	ended := make(chan outcome, 1)
	s := &loopSession{on: on, ended: func(res relay.Result, err error) { ended <- outcome{res, err} }}
	A, B := pairOn(t, on, func(a, b relay.Socket) { on.driver.Start(&s.driven, a, b, s) }, s)
	must.Do(t, ping(A, B, 5))
	must.Do(t, ping(B, A, 3))
	for round := range int64(2) {
		c := &thief{takes: true, has: make(chan struct{}), ab: 100 * (round + 1), ba: 50 * (round + 1)}
		on.do(func() { s.driven.Offer(c) })
		write(t, A, "x")
		<-c.has
		on.do(func() {
			if s.driven.Quiet() {
				t.Error("the Carrier decides whether it is quiet")
			}
			if c.quiet = true; !s.driven.Carried() || !s.driven.Quiet() {
				t.Error("the Carrier decides whether it is quiet, and has it")
			}
		})
		last := [2]relay.Side{relay.SideA, relay.SideB}[round]
		A, B = pairOn(t, on, func(a, b relay.Socket) {
			if !s.driven.Return(a, b, [2]bool{round == 1, false}, last) {
				t.Error("it does not return")
			}
			if s.driven.Return(a, b, [2]bool{}, last) {
				t.Error("it returns twice")
			}
			if res := s.driven.Result(); s.driven.Carried() || res.AToB.Carried != c.ab || res.BToA.Carried != c.ba {
				t.Errorf("%+v", res)
			}
			if s.driven.Quiet() != (last == relay.SideB) {
				t.Errorf("side %v was the last to send", last)
			}
		}, s)
		if round == 0 {
			must.Do(t, ping(A, B, 5))
		}
		must.Do(t, ping(B, A, 3))
	}
	write(t, A, "after the end")
	must.Do(t, B.CloseWrite())
	o := end(t, ended)
	if r := o.result; r.Reason != relay.ReasonEOF || r.First != relay.SideA || r.AToB.Bytes() != 200+2 || r.BToA.Bytes() != 100+3 || o.err != nil {
		t.Errorf("%+v, %v", r, o.err)
	}
}

// TestHalfEnded: the half-close timeout of a session that a Carrier has.
func TestHalfEnded(t *testing.T) {
	t.Parallel()

	on := ofLoop().looped(t, newRelay(t, &relay.Config{HalfCloseTimeout: 10 * time.Millisecond}))
	ended := make(chan outcome, 1)
	s := &loopSession{on: on, ended: func(res relay.Result, err error) { ended <- outcome{res, err} }}
	A, _ := pairOn(t, on, func(a, b relay.Socket) { on.driver.Start(&s.driven, a, b, s) }, s)
	c := &finisher{thief{takes: true, has: make(chan struct{})}, s}
	on.do(func() { s.driven.Offer(c) })
	write(t, A, "x")
	<-c.has
	on.do(func() { s.driven.HalfEnded(relay.SideB) })
	if o := end(t, ended); o.result.Reason != relay.ReasonHalfClose || o.result.First != relay.SideB {
		t.Errorf("%+v, %v", o.result, o.err)
	}
}

// A finisher is a thief that ends the session when it is reset.
type finisher struct {
	thief
	s *loopSession
}

func (c *finisher) Reset() { _ = c.s.on.loop.Post(func() { c.s.driven.Finish(true, relay.SideNone) }) }

// pairOn calls f on the loop with two sockets that are on it for the session, and returns their far ends.
func pairOn(t *testing.T, on *looped, f func(a, b relay.Socket), s *loopSession) (halfConn, halfConn) {
	t.Helper()
	A, nearA := tcp(t)
	B, nearB := tcp(t)
	a, b := on.take(nearA), on.take(nearB)
	on.do(func() {
		a.ID, _ = on.loop.Add(a.FD, 0, &s.driven)
		b.ID, _ = on.loop.Add(b.FD, 1, &s.driven)
		f(a, b)
	})
	return A, B
}

// TestFinishError: a session that a Carrier has had ends with the error of the side that has failed, unless it was being reset before.
func TestFinishError(t *testing.T) {
	t.Parallel()

	for _, cut := range []bool{false, true} {
		on := ofLoop().looped(t, newRelay(t, nil))
		ended := make(chan outcome, 1)
		s := &loopSession{on: on, ended: func(res relay.Result, err error) { ended <- outcome{res, err} }}
		A, _ := pairOn(t, on, func(a, b relay.Socket) { on.driver.Start(&s.driven, a, b, s) }, s)
		c := &thief{takes: true, has: make(chan struct{}), ab: 7}
		on.do(func() {
			s.driven.FinishError(relay.SideA, syscall.ETIMEDOUT) // no Carrier has it
			s.driven.Offer(c)
		})
		write(t, A, "x")
		<-c.has
		on.do(func() {
			if cut {
				s.driven.Cut(io.ErrNoProgress)
			}
			s.driven.FinishError(relay.SideB, syscall.ETIMEDOUT)
			s.driven.FinishError(relay.SideA, syscall.ETIMEDOUT) // it has ended
		})
		o := end(t, ended)
		reason, side, want := relay.ReasonError, relay.SideB, error(syscall.ETIMEDOUT)
		if cut {
			reason, side, want = relay.ReasonCanceled, relay.SideNone, io.ErrNoProgress
		}
		if r := o.result; r.Reason != reason || r.Culprit != side || !errors.Is(o.err, want) || r.AToB.Carried != 7 {
			t.Errorf("cut %v: %+v, %v", cut, r, o.err)
		}
	}
}
