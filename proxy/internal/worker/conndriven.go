package worker

import (
	"time"

	"github.com/penstock/penstock/relay"
)

// The session of a joined client is a relay.Driven in a seat or, once it has been out of user space for a while, a relay.Parked in its
// part in the lane. What only looks at it takes it as it is; all else takes driven.

// parked reports whether the session of a joined client is.
func (n *conn) parked() bool { return n.seat == nil }

// driven returns the session of a joined client, which has a seat from then on, for a second at least.
func (n *conn) driven() *relay.Driven {
	if n.parked() {
		n.worker().unpark(n)
	}
	return n.seat
}

// limits returns those of a joined client's session.
func (n *conn) limits() *relay.Limits {
	if n.parked() {
		return n.lane.parked.Limits()
	}
	return n.seat.Limits()
}

// binding returns that of a joined client's session, or nil.
func (n *conn) binding() Binding { return bindingOf(n.limits()) }

// result returns the counters of a joined client's session.
func (n *conn) result() relay.Result {
	if n.parked() {
		return n.lane.parked.Result(n.worker().driver, n.lane)
	}
	return n.seat.Result()
}

// idle is for how long no byte of a joined client has moved.
func (n *conn) idle() time.Duration {
	if n.parked() {
		return n.lane.parked.Idle(n.worker().driver, n.lane)
	}
	return n.seat.Idle()
}

// quiet is [relay.Driven.Quiet].
func (n *conn) quiet() bool {
	if n.parked() {
		return n.lane.Quiet()
	}
	return n.seat.Quiet()
}

// carried reports whether the session of a joined client has left user space.
func (n *conn) carried() bool { return n.parked() || n.seat.Carried() }

// descriptors returns the sockets of a joined client's session, -1 if it has left user space.
func (n *conn) descriptors() (a, b int) {
	if n.parked() {
		return -1, -1
	}
	return n.seat.Descriptors()
}

// legs is [relay.Driven.Legs].
func (n *conn) legs() relay.Legs {
	if n.parked() {
		return relay.Legs{}
	}
	return n.seat.Legs()
}
