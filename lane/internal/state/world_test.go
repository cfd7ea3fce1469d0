package state_test

import (
	"fmt"

	"github.com/penstock/penstock/lane/internal/state"
)

// A world is a session with all that may happen to it: the memory that the programs share, two
// sockets, two endpoints that send units in place of bytes, two CPUs that run the programs step by
// step, and the process. Worlds are compared, so there is no pointer in one.
//
// Side i's endpoint sends the units 0, 1, …; unit n of side i is delivered to endpoint 1-i at a
// position, which must be n.
type world struct {
	word  uint8 // the state
	count uint8 // of changes, for claims
	note  [2]uint8
	reset [2]bool // an RST of the endpoint was noted

	endpoint [2]endpoint
	socket   [2]socket
	cpu      [2]cpu
	user     user

	shift   [2]int8  // of positions, once claimed
	seen    [2]uint8 // units of the other side that the endpoint has acknowledged, as the lane knows
	carried [2]uint8 // units of this side that the lane has carried
	passed  bool     // an RST has passed in the lane
	leaves  uint8
	killed  bool
	adopted bool // by a second process
}

// An endpoint has sent units, knows how many were acknowledged, has got units of the other side,
// and may have reset its connection.
type endpoint struct {
	sent, una, got uint8
	reset          bool
}

// A socket of the proxy: units from its endpoint that were received and read, units to it that
// were written and are acknowledged.
type socket struct {
	rcv, read, written, acked uint8
	closed                    bool // by the process or an RST: no longer established
	absent                    bool // the ghost is gone
	finDue, finOut            bool // a FIN or RST is on its way to the guard, or has left
}

// A cpu is a run of the ingress program on a packet.
type cpu struct {
	at    step
	side  uint8
	unit  uint8
	ack   uint8 // units of the other side that the endpoint has when it sends the packet
	rst   bool
	pure  bool  // an acknowledgement without a unit
	claim uint8 // count of its claim
	fit   bool  // what it has seen so far allows it to leave
	notes [2]uint8
	shift [2]int8
	old   bool // has begun before the grace period that user space waits for
}

type user struct {
	owns       bool // believes that it may touch the sockets
	registered bool
	grace      bool // has waited for it
	waiting    bool
	held       [2]uint8 // units of side i that were read and are not written
	arms       uint8
	returns    uint8
}

// A step is where a run of the program is.
type step uint8

const (
	idle step = iota
	readState
	claim
	lookNotes
	look0
	look1
	commit
	note
	giveUp
	again
	spoil
	deliver
	translate
)

// A scenario bounds what may happen.
type scenario struct {
	units   [2]uint8 // that each endpoint sends
	arms    uint8    // how often user space arms
	resets  bool     // an endpoint may reset its connection
	returns uint8    // how often user space stops the lane
	dies    bool     // the process may die
	adopts  bool     // another one may adopt the session then
	ends    bool     // from every world all units arrive and are acknowledged, if nothing is reset
}

// A mutant is a scenario in which one of the mechanisms is left out.
type mutant struct {
	scenario
	noGrace, noAgain, noSpoil, noSwap, noCount, noNotes, noGuard, noDisarm, noReset bool

	noStop, asCarried, early, noCatchUp bool // of the return
}

// over reports whether nothing more of interest can happen: the session has died in user space.
func (w *world) over() bool {
	return w.killed && w.state() < state.Armed && w.socket[0].closed && w.socket[1].closed
}

// arrived reports whether all units have arrived and are acknowledged.
func (w *world) arrived(units [2]uint8) bool {
	return w.endpoint[0].una == units[0] && w.endpoint[1].una == units[1]
}

// canonical is the same world, whichever CPU is which.
func (w world) canonical() world {
	a, b := w.cpu[0], w.cpu[1]
	if a.rank() < b.rank() {
		w.cpu[0], w.cpu[1] = b, a
	}
	return w
}

func (p *cpu) rank() int {
	n := int(p.at)<<8 | int(p.side)<<7 | int(p.unit)<<4 | int(p.claim)<<1
	if p.rst {
		n |= 8
	}
	if p.old {
		n |= 1
	}
	if p.pure {
		n |= 1 << 15
	}
	return n<<20 | int(p.ack)<<16 | int(p.notes[0])<<8 | int(p.notes[1])
}

// change makes a change of state, which the table must have.
func (w *world) change(to state.State, by state.Actor) {
	from := state.State(w.word)
	if !state.Allowed(from, to, by) {
		panic(fmt.Sprintf("the table has no change from %v to %v by %v", from, to, by))
	}
	w.word = uint8(to)
	if to == state.Claimed || to == state.Armed {
		w.count++ // changes that others could be mistaken for
	}
	if to == state.Lane {
		w.leaves++
	}
	exercised[[3]uint8{uint8(from), uint8(to), uint8(by)}] = true
}

// exercised are the changes that some world has made.
var exercised = make(map[[3]uint8]bool)

func (w *world) state() state.State { return state.State(w.word) }

// broken returns which promise the world breaks, or "".
func (w *world) broken() string {
	s := w.state()
	if w.leaves > 1 {
		return "the session left twice without coming back"
	}
	for i := range 2 {
		in, out, from, to := &w.socket[i], &w.socket[1-i], &w.endpoint[i], &w.endpoint[1-i]
		if s == state.Lane {
			switch {
			case in.rcv != in.read || w.user.held[i] != 0 || out.written != in.rcv:
				return fmt.Sprintf("side %d: a byte is in the proxy and the session in the lane", i)
			case w.shift[i] != 0:
				return "the offset is wrong"
			case in.finOut:
				return "a FIN or RST of a ghost has left"
			}
		}
		if s == state.Lane && to.got < from.una {
			return fmt.Sprintf("side %d: a byte is nowhere: acknowledged, and not there", i)
		}
		if s == state.User && !w.killed && !in.closed && !out.closed {
			switch {
			case in.rcv < from.una:
				return fmt.Sprintf("side %d: a byte is nowhere after the return", i)
			case out.acked > to.got:
				return fmt.Sprintf("side %d: a socket takes as acknowledged what is not there", i)
			case out.written+w.user.held[i] != in.read:
				return fmt.Sprintf("side %d: the sockets disagree on a position", i)
			}
		}
	}
	return ""
}
