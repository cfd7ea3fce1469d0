package worker

import (
	"time"

	"github.com/penstock/penstock/lane"
	"github.com/penstock/penstock/proxy/internal/verdict"
	"github.com/penstock/penstock/relay"
)

// A laneBefore is the parts of a session's time until it has left user space, by cause, in ms.
type laneBefore [verdict.Kinds]uint32

// noteLeaving keeps the parts of a session's time until now. Its sockets are there still.
func (c *laneSession) noteLeaving() {
	s := c.conn.userSample()
	for k, t := range verdict.TimesOf(&s) {
		c.before[k] = uint32(t / time.Millisecond)
	}
}

// view returns the lane's observations of the session, also at its end, and whether it has ever left.
func (c *laneSession) view() (v lane.View, left bool) {
	if c.result != nil {
		return c.result.View, c.result.Left
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
	if !carried { // it is back
		s.Duration -= v.Time
		before = verdict.TimesOf(s)
	} else {
		for k, ms := range c.before {
			before[k] = time.Duration(ms) * time.Millisecond
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
	r, legs := n.session.Result(), n.session.Legs()
	r.Legs = &legs
	return verdict.OfResult(&r, !n.ref.serving.socket.TCP, !n.tcp, -1)
}

// sample returns what is known of a joined session's waits.
func (n *conn) sample() *verdict.Sample {
	s := n.userSample()
	if c := n.worker().lanes.of[n]; c != nil {
		c.addTo(&s, n.session.Carried())
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

// sideOf is the side that has reset the session, or has ended first.
func sideOf(v *lane.View) relay.Side {
	switch v.EndedBy {
	case 0:
		return relay.SideA
	case 1:
		return relay.SideB
	}
	return relay.SideNone
}
