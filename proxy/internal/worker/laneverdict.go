package worker

import (
	"math/bits"
	"time"

	"github.com/penstock/penstock/lane"
	"github.com/penstock/penstock/proxy/internal/verdict"
	"github.com/penstock/penstock/relay"
)

// laneTimes are the parts of a session's time until it has left user space, by cause. Until then the first two are the halves of a time, see tried.
type laneTimes [verdict.Kinds]span

// tried is when packets began to try to take a session that has not left, by milliseconds of the loop's clock.
func (t *laneTimes) tried() uint32 { return uint32(t[0])<<16 | uint32(t[1]) }

func triedAt(at uint32) laneTimes { return laneTimes{span(at >> 16), span(at)} }

// tries notes that packets begin to try.
func (c *laneSession) tries() {
	c.times = triedAt(c.worker().milliseconds())
	c.set(hasLeft, false)
}

// A span is a time to a two thousandth of itself, and to a millisecond: 11 bits of the highest ones, and how far these are shifted.
type span uint16

const spanBits = 11

func newSpan(t time.Duration) span {
	ms := min(uint64(max(t, 0)/time.Millisecond), 1<<(31+spanBits)-1) // more than a century
	shift := max(bits.Len64(ms)-spanBits, 0)
	return span(shift<<spanBits) | span(ms>>shift)
}

func (s span) time() time.Duration {
	return time.Duration(s&(1<<spanBits-1)) << (s >> spanBits) * time.Millisecond
}

// noteLeaving keeps the parts of a session's time until now. Its sockets are there still.
func (c *laneSession) noteLeaving() {
	s := c.conn.userSample()
	for k, t := range verdict.TimesOf(&s) {
		c.times[k] = newSpan(t)
	}
	c.set(hasLeft, true)
}

// view returns the lane's observations of the session, also at its end, and whether it has ever left.
func (c *laneSession) view() (v lane.View, left bool) {
	if r := c.worker().lanes.results[c]; r != nil {
		return r.View, r.Left
	}
	v, ok := c.session.Look()
	return v, ok && v.Time > 0
}

// addTo has a sample of the session know of its time in the lane. carried says that it ends there.
func (c *laneSession) addTo(s *verdict.Sample, carried bool) {
	v, left := c.view()
	if !left {
		return
	}
	var before verdict.Times
	if !carried || !c.is(hasLeft) { // it is back
		s.Duration -= v.Time
		before = verdict.TimesOf(s)
	} else {
		for k, t := range c.times {
			before[k] = t.time()
		}
	}
	*s = verdict.OfLane(&v, before)
}

// turn returns the state of a session that has left: whether its endpoint has answered since the look before, which is that both have sent
// something that the other one has acknowledged. A stream that goes on is no answer. Whether one is awaited is not known.
func (c *laneSession) turn() relay.Turn {
	t := relay.Turn{Last: relay.SideB, Quiet: c.session.Idle()}
	n := c.session.Bytes()
	now := [2]uint16{uint16(n[0]), uint16(n[1])}
	t.Answered = now[0] != c.passed[0] && now[1] != c.passed[1]
	c.passed = now
	return t
}

// userSample returns what is known of a joined session's waits in user space.
func (n *conn) userSample() verdict.Sample {
	r, legs := n.result(), n.legs()
	r.Legs = &legs
	return verdict.OfResult(&r, !n.ref.serving.socket.TCP, !n.tcp(), -1)
}

// sample returns what is known of a joined session's waits.
func (n *conn) sample() *verdict.Sample {
	s := n.userSample()
	if c := n.lane; c != nil {
		c.addTo(&s, n.carried())
	}
	return &s
}

// sampleAtEnd returns that of a session that has ended, or false if it is not known. c is its part in the lane; nil: it had none.
func sampleAtEnd(res *relay.Result, localClient, localEndpoint bool, c *laneSession) (s verdict.Sample, ok bool) {
	s = verdict.OfResult(res, localClient, localEndpoint, -1)
	if c != nil {
		c.addTo(&s, res.Legs == nil)
	}
	return s, res.Legs != nil || s.Lane != nil
}

// SideOf returns the side of an endpoint of the lane, 0 or 1; another number is of none.
func SideOf(endpoint int) relay.Side {
	switch endpoint {
	case 0:
		return relay.SideA
	case 1:
		return relay.SideB
	}
	return relay.SideNone
}
