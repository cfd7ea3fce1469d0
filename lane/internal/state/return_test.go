package state_test

import "github.com/penstock/penstock/lane/internal/state"

// comeBack takes the session out of the lane: it is held, a grace period passes, and the sockets
// are restored at the acknowledgements that the lane has seen.
func (w world) comeBack(m mutant, quiet bool, do func(func(*world))) {
	quiet = quiet || m.noStop
	switch s := w.state(); {
	case s == state.Lane && w.user.returns < m.returns && !w.user.owns:
		do(func(n *world) {
			n.change(state.Held, state.Owner)
			n.user.returns++
			n.socket[0].absent, n.socket[1].absent = true, true
			n.wait()
		})
	case s == state.Held && w.passed && quiet:
		do(func(n *world) { n.change(state.Done, state.Owner) })
	case s == state.Done && w.passed: // the sockets are gone, and nobody goes on
		do(func(n *world) {
			n.socket[0].absent, n.socket[1].absent = true, true
			n.change(state.Reset, state.Owner)
		})
	case s == state.Held && quiet:
		do(func(n *world) {
			n.change(state.User, state.Owner)
			if !m.early {
				n.restore(m)
			}
		})
		if !m.ends {
			do(func(n *world) { n.change(state.Reset, state.Owner) })
		}
	case s == state.User && m.early && w.socket[0].absent:
		do(func(n *world) { n.restore(m) })
	}
}

// restore makes the sockets anew.
func (w *world) restore(m mutant) {
	at := [2]uint8{w.seen[1], w.seen[0]} // of the units of side i
	if m.asCarried {
		at = w.carried
	}
	for i := range 2 {
		w.socket[i] = socket{rcv: at[i], read: at[i], written: at[1-i], acked: at[1-i]}
		w.note[i] = 0
	}
	w.user.owns, w.user.waiting, w.user.grace, w.leaves = true, false, true, 0
}

// adopt has another process take the session over, once its predecessor's sockets are closed: one that is
// held is in the lane again, unless a reset has passed.
func (w world) adopt(m mutant, yield func(world, string)) {
	closed := w.socket[0].closed && w.socket[1].closed && !w.socket[0].finDue && !w.socket[1].finDue
	s := w.state()
	if !m.adopts || w.adopted || !closed || s != state.Lane && s != state.Held {
		return
	}
	w.killed, w.adopted = false, true
	w.user = user{registered: true, arms: w.user.arms, returns: w.user.returns}
	w.socket = [2]socket{{absent: true, closed: true}, {absent: true, closed: true}}
	switch {
	case s == state.Held && w.passed:
		w.change(state.Done, state.Owner)
	case s == state.Held:
		w.change(state.Lane, state.Owner)
		w.leaves-- // no packet has had it leave
	}
	w.wait()
	yield(w, "")
}
