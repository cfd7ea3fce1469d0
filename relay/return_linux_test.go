package relay_test

import (
	"errors"
	"io"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/relay"
)

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
	if err := ping(A, B, 5); err != nil {
		t.Fatal(err)
	}
	if err := ping(B, A, 3); err != nil {
		t.Fatal(err)
	}
	for round := range int64(2) {
		c := &thief{takes: true, has: make(chan struct{}), ab: 100 * (round + 1), ba: 50 * (round + 1)}
		on.do(func() { s.driven.Offer(c) })
		if _, err := io.WriteString(A, "x"); err != nil {
			t.Fatal(err)
		}
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
			if err := ping(A, B, 5); err != nil {
				t.Fatal(err)
			}
		}
		if err := ping(B, A, 3); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := io.WriteString(A, "after the end"); err != nil {
		t.Fatal(err)
	}
	if err := B.CloseWrite(); err != nil {
		t.Fatal(err)
	}
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
	if _, err := io.WriteString(A, "x"); err != nil {
		t.Fatal(err)
	}
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
		if _, err := io.WriteString(A, "x"); err != nil {
			t.Fatal(err)
		}
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
