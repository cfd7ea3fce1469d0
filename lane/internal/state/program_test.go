package state_test

import "github.com/penstock/penstock/lane/internal/state"

// run makes one step of the ingress program on a CPU, and returns the promise that it breaks.
func (w *world) run(m mutant, c int) string {
	p := &w.cpu[c]
	switch p.at {
	case readState:
		w.first(m, p)
	case claim:
		w.claim(p)
	case lookNotes: // before the sockets: a packet that is noted and not there yet must be missed there
		p.notes, p.at = w.note, look0
		p.fit = m.noReset || m.noNotes || w.reset == [2]bool{}
	case look0, look1:
		w.look(m, p, int(p.at-look0))
		if p.at++; p.at == commit {
			p.notes = [2]uint8{}
		}
		if !p.fit {
			p.at, p.notes, p.shift = note, [2]uint8{}, [2]int8{}
		}
	case commit:
		if m.noSwap {
			w.word = uint8(state.Claimed)
		}
		if w.state() == state.Claimed && (m.noSwap || m.noCount || w.count == p.claim) {
			w.change(state.Lane, state.Claimer)
			w.shift = p.shift
			w.seen = [2]uint8{w.socket[0].written, w.socket[1].written}
			w.carried, w.passed = [2]uint8{w.socket[0].rcv, w.socket[1].rcv}, false
			*p = cpu{at: translate, side: p.side, unit: p.unit, ack: p.ack, old: p.old}
		} else {
			*p = cpu{at: note, side: p.side, unit: p.unit, ack: p.ack, old: p.old}
		}
	case note:
		if p.rst {
			w.reset[p.side] = true
		} else {
			w.note[p.side] = max(w.note[p.side], p.unit+1)
		}
		if p.at = again; p.claim != 0 {
			p.at = giveUp
		}
		if m.noAgain {
			p.at = deliver
		}
	case giveUp:
		if w.state() == state.Claimed && w.count == p.claim {
			w.change(state.User, state.Claimer)
		}
		p.at, p.claim = again, 0
	case again:
		w.again(m, p)
	case spoil:
		if p.at = again; w.state() == state.Claimed {
			w.change(state.User, state.Ingress)
			p.at = deliver
		}
	case deliver:
		return w.deliver(m, p)
	case translate:
		return w.translate(p)
	}
	return ""
}

// first acts on the state that the program reads when it begins.
func (w *world) first(m mutant, p *cpu) {
	switch f := state.Arriving(w.state()); {
	case f == state.Pass:
		p.at = deliver
	case f == state.Translate:
		p.at = translate
	case f == state.Drop, p.pure: // those up to a socket are steps of the socket
		*p = cpu{}
	case f == state.Try && !p.rst:
		p.at = claim
	default:
		p.at = note
	}
}

func (w *world) claim(p *cpu) {
	if w.state() != state.Armed {
		p.at = note
		return
	}
	w.change(state.Claimed, state.Ingress)
	p.at, p.claim = lookNotes, w.count
}

// look looks at the socket of side i.
func (w *world) look(m mutant, p *cpu, i int) {
	s, other := &w.socket[i], &w.socket[1-i]
	p.fit = p.fit && !s.closed && s.rcv == s.read
	p.fit = p.fit && (m.noNotes || p.notes[i] == 0 || p.notes[i] == s.rcv)
	if i == int(p.side) { // this socket has not seen the packet's acknowledgement yet
		p.fit = p.fit && s.rcv == p.unit && s.written == p.ack
	} else {
		p.fit = p.fit && s.written == s.acked
	}
	p.shift[i] = int8(other.written) - int8(s.rcv)
}

// again acts on the state that the program reads when its packet is noted.
func (w *world) again(m mutant, p *cpu) {
	switch s := w.state(); {
	case s == state.Claimed && !m.noSpoil:
		p.at = spoil
	case s == state.Lane || s == state.Done:
		p.at = translate
	case s == state.Held:
		*p = cpu{}
	default:
		p.at = deliver
	}
}

// deliver gives the packet to the socket.
func (w *world) deliver(m mutant, p *cpu) (bad string) {
	s := &w.socket[p.side]
	ghost := w.state() == state.Lane
	switch {
	case p.rst:
		if ghost {
			bad = "a ghost has the endpoint's RST"
		}
		s.closed = true
	case s.absent && w.state() == state.User:
		bad = "the kernel resets an endpoint, for there is no socket"
	case m.noCatchUp && p.ack > s.written: // a socket drops acknowledgements of bytes that it has not sent (tcp_ack)
	case !s.closed && w.state() != state.Reset && s.rcv == p.unit:
		if ghost {
			bad = "a ghost has a byte"
		}
		s.rcv++
	}
	*p = cpu{}
	return bad
}

// translate gives the packet to the other endpoint.
func (w *world) translate(p *cpu) (bad string) {
	to := &w.endpoint[1-p.side]
	if !p.rst {
		w.lose(p)
		to.una = max(to.una, p.ack)
	}
	switch {
	case p.pure:
	case p.rst:
		to.reset, w.passed = true, true
		if w.state() == state.Lane {
			w.change(state.Done, state.Ingress)
		}
	case int8(p.unit)+w.shift[p.side] == int8(to.got):
		if p.unit != to.got {
			bad = "a byte has come to another place"
		}
		to.got++
	}
	*p = cpu{}
	return bad
}

// lose accounts for a packet that is translated, whether it arrives or not.
func (w *world) lose(p *cpu) {
	w.seen[p.side] = max(w.seen[p.side], p.ack)
	if !p.pure {
		w.carried[p.side] = max(w.carried[p.side], p.unit+1)
	}
}
