package worker

import (
	"time"

	"github.com/penstock/penstock/relay"
)

// The session of a joined client is a relay.Driven of the pool or, once it has been out of user space for a while, a relay.Parked in its
// part in the lane. Code that only reads it takes it as it is; all other code takes driven.

// parked reports whether the session of a joined client is.
func (n *conn) parked() bool { return n.session == nil }

// driven returns the session of a joined client, which is none that is parked from then on, for a second at least.
func (n *conn) driven() *relay.Driven {
	if n.parked() {
		n.worker().unpark(n)
	}
	return n.session
}

// limits returns the session's limits. Its client is joined.
func (n *conn) limits() *relay.Limits {
	if n.parked() {
		return n.lane.parked.Limits()
	}
	return n.session.Limits()
}

// binding returns that of a joined client's session, or nil.
func (n *conn) binding() Binding { return bindingOf(n.limits()) }

// result returns the counters of a joined client's session.
func (n *conn) result() relay.Result {
	if n.parked() {
		return n.lane.parked.Result(n.worker().driver, n.lane)
	}
	return n.session.Result()
}

// idle is for how long no byte of a joined client has moved.
func (n *conn) idle() time.Duration {
	if n.parked() {
		return n.lane.parked.Idle(n.worker().driver, n.lane)
	}
	return n.session.Idle()
}

// quiet is [relay.Driven.Quiet].
func (n *conn) quiet() bool {
	if n.parked() {
		return n.lane.Quiet()
	}
	return n.session.Quiet()
}

// carried reports whether the session of a joined client has left user space.
func (n *conn) carried() bool { return n.parked() || n.session.Carried() }

// descriptors returns the sockets of a joined client's session, -1 if it has left user space.
func (n *conn) descriptors() (a, b int) {
	if n.parked() {
		return -1, -1
	}
	return n.session.Descriptors()
}

// legs is [relay.Driven.Legs].
func (n *conn) legs() relay.Legs {
	if n.parked() {
		return relay.Legs{}
	}
	return n.session.Legs()
}
