package state_test

import "github.com/penstock/penstock/lane/internal/state"

// next calls yield for every world that one step of some actor leads to.
func (w world) next(m mutant, yield func(world, string)) {
	if w.over() {
		return
	}
	for c := range 2 {
		w.arrivals(m, c, yield)
		if w.cpu[c].at != idle {
			n := w
			if bad := n.run(m, c); n != w || bad != "" {
				yield(n, bad)
			}
		}
		if p := &w.cpu[c]; m.returns > 0 && p.at == translate && !p.rst { // it is lost behind the lane
			n := w
			n.lose(p)
			n.cpu[c] = cpu{}
			yield(n, "")
		}
	}
	for i := range 2 {
		w.sockets(m, i, yield)
	}
	if w.killed {
		w.adopt(m, yield)
		return
	}
	w.process(m, yield)
	if n := w; m.dies {
		n.killed, n.user.owns = true, false // the kernel closes the sockets in either order
		yield(n, "")
	}
}

// arrivals are packets that the endpoints send: the next unit, one again that is not
// acknowledged, or an RST.
func (w world) arrivals(m mutant, c int, yield func(world, string)) {
	if w.cpu[c].at != idle {
		return
	}
	for i := range uint8(2) {
		e := &w.endpoint[i]
		if e.reset {
			continue
		}
		for unit := e.una; unit <= e.sent && unit < m.units[i]; unit++ {
			n := w
			n.cpu[c] = cpu{at: readState, side: i, unit: unit, ack: e.got, old: w.user.waiting}
			n.endpoint[i].sent = max(e.sent, unit+1)
			yield(n, "")
		}
		if n := w; m.returns > 0 && w.state() >= state.Lane && (w.seen[i] < e.got || w.endpoint[1-i].una < e.got) {
			n.cpu[c] = cpu{at: readState, side: i, pure: true, ack: e.got, old: w.user.waiting}
			yield(n, "")
		}
		if n := w; m.resets && i == 1 { // one endpoint that resets is enough
			n.cpu[c] = cpu{at: readState, side: i, rst: true, old: w.user.waiting}
			n.endpoint[i].reset = true
			yield(n, "")
		}
	}
}

// sockets are steps of the kernel: acknowledgements, units that leave, and closing.
func (w world) sockets(m mutant, i int, yield func(world, string)) {
	s, e := &w.socket[i], &w.endpoint[i]
	if !s.closed && w.endpoint[i].una < s.rcv && w.state() < state.Lane {
		n := w
		n.endpoint[i].una = s.rcv
		yield(n, "")
	}
	if s.written > e.got && !s.closed { // a unit leaves by the guard
		n := w
		if n.guard(m, false) {
			n.endpoint[i].got++
			yield(n, "")
		} else if n != w {
			yield(n, "")
		}
	}
	if s.acked < min(e.got, s.written) && w.state() < state.Lane {
		n := w
		n.socket[i].acked = min(e.got, s.written)
		yield(n, "")
	}
	if w.killed && !s.closed {
		n := w
		n.socket[i].closed, n.socket[i].finDue = true, true
		yield(n, "")
	}
	if s.finDue {
		n := w
		n.socket[i].finDue = false
		n.socket[i].finOut = n.guard(m, true)
		yield(n, "")
	}
	if from := &w.endpoint[1-i]; m.returns == 0 && w.state() == state.Lane && from.una < e.got { // an acknowledgement in the lane
		n := w
		n.seen[i], n.endpoint[1-i].una = e.got, e.got
		yield(n, "")
	}
}

// guard is the egress program, and reports whether the packet leaves.
func (w *world) guard(m mutant, end bool) bool {
	if m.noGuard {
		return true
	}
	switch state.Leaving(w.state()) {
	case state.Drop, state.Confine: // there is no step for acknowledgements
		return false
	case state.Disarm:
		if end || w.state() == state.Claimed {
			w.change(state.User, state.Egress)
		}
	}
	return true
}

// process are the steps of user space.
func (w world) process(m mutant, yield func(world, string)) {
	u := &w.user
	do := func(f func(n *world)) { n := w; f(&n); yield(n, "") }
	idle := u.held == [2]uint8{} && !w.socket[0].closed && !w.socket[1].closed
	quiet := (!w.cpu[0].old || w.cpu[0].at == idleStep) && (!w.cpu[1].old || w.cpu[1].at == idleStep)
	switch {
	case !u.registered:
		do(func(n *world) { n.change(state.User, state.Owner); n.user.registered = true; n.wait() })
	case u.waiting && (quiet || m.noGrace):
		do(func(n *world) { n.user.waiting, n.user.grace = false, true })
	}
	if u.owns {
		for i := range 2 {
			w.relay(i, yield)
		}
	}
	if u.owns && u.registered && u.grace && idle && u.arms < m.arms && !u.waiting && w.state() == state.User {
		do(func(n *world) { n.change(state.Armed, state.Owner); n.user.owns = false; n.user.arms++ })
	}
	if !u.owns {
		w.disarm(m, do)
	}
	if m.returns > 0 {
		w.comeBack(m, quiet, do)
	}
}

const idleStep = idle

// wait begins a grace period: for the runs that have begun.
func (w *world) wait() {
	w.user.waiting, w.user.grace = true, false
	for c := range w.cpu {
		w.cpu[c].old = w.cpu[c].at != idle
	}
}

// relay moves a unit of side i, by reading it or by writing it. A socket that is touched while
// user space does not have the session breaks a promise.
func (w world) relay(i int, yield func(world, string)) {
	if s := w.state(); s != state.User && s != state.Free {
		yield(w, "user space touches a socket in state "+s.String())
	}
	if s := &w.socket[i]; s.read < s.rcv && !s.closed {
		n := w
		n.socket[i].read++
		n.user.held[i]++
		yield(n, "")
	}
	if w.user.held[i] > 0 && !w.socket[1-i].closed {
		n := w
		n.user.held[i]--
		n.socket[1-i].written++
		yield(n, "")
	}
}

// disarm takes the session back, or finds that it may not.
func (w world) disarm(m mutant, do func(func(*world))) {
	switch s := w.state(); {
	case s == state.Armed || s == state.Claimed:
		do(func(n *world) { n.change(state.User, state.Owner); n.user.owns = true })
	case s == state.User && !w.socket[0].absent, m.noDisarm && s == state.Lane:
		do(func(n *world) { n.user.owns = true })
	}
}
