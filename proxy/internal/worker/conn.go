package worker

import (
	"reflect"
	"time"

	"github.com/penstock/penstock/relay"
)

// A conn is a client and, once it is joined, its session. It lives in a slab and is used
// again; an idle session costs one conn, its session, and two slots of the loop's table, so nothing is in
// it that is not needed then. One that has left user space for long has no relay.Driven, nor slots.
type conn struct {
	session        *relay.Driven // of the pool; owns both sockets. nil unless it is joined, and while it is parked
	lane           *laneSession  // its part in the lane; nil: it has none
	ref            *listenerRef  // of its dialing, or once it is joined of its serving; nil while it is free
	admissionToken uint64        // once it is joined
	number         int32         // see fd, due; while it has a session the slab of that
	slab           uint16
	state          state
	facts          connFacts
}

// connFacts are small facts about a conn.
type connFacts uint8

const (
	isTCP     connFacts = 1 << iota // the client's socket is of TCP; once it is joined, the endpoint's
	waitsLane                       // it is going to be asked whether its session may leave user space
	adopted                         // a process before this one has had its session
	unsent                          // bytes were on the way to a peer at the last pass of windows
)

func (n *conn) is(f connFacts) bool { return n.facts&f != 0 }

func (n *conn) set(f connFacts, on bool) {
	if n.facts &^= f; on {
		n.facts |= f
	}
}

// tcp reports whether the client's socket is of TCP; once it is joined, the endpoint's.
func (n *conn) tcp() bool { return n.is(isTCP) }

// worker returns that of a conn that is not free.
func (n *conn) worker() *worker { return n.ref.serving.worker }

// fd is the client's socket, owned, until it is joined.
func (n *conn) fd() int { return int(n.number) }

type state uint8

const (
	free state = iota
	connecting
	joined
)

// slabSize is how many conns are made at a time: as many as fit into a size class of the runtime, beside the word that it
// needs for itself.
var slabSize = int((8<<10 - 8) / reflect.TypeFor[conn]().Size())

// places are the conns of a worker, in slabs. A conn never moves.
type places struct {
	slabs    [][]conn
	unused   []*conn
	sessions sessionPool
}

// take returns a free conn for a client.
func (p *places) take(accepted client) *conn {
	if len(p.unused) == 0 {
		p.grow()
	}
	last := len(p.unused) - 1
	n := p.unused[last]
	if p.unused = p.unused[:last]; cap(p.unused) > 4*max(last, slabSize) { // or clients of a peak after another one would pay for the list too
		p.unused = append(make([]*conn, 0, cap(p.unused)/2), p.unused...)
	}
	n.number, n.facts = int32(accepted.fd), 0
	n.set(isTCP, accepted.socket.TCP)
	return n
}

func (p *places) grow() {
	slab := make([]conn, slabSize)
	for i := range slab {
		slab[i].slab = uint16(len(p.slabs)) // RLIMIT_NOFILE is far below what would not fit
		p.unused = append(p.unused, &slab[len(slab)-1-i])
	}
	p.slabs = append(p.slabs, slab)
}

// takeSession has a conn be joined, with a session of the pool that is to be started or unparked.
func (p *places) takeSession(n *conn) *relay.Driven {
	n.state = joined
	n.session, n.number = p.sessions.take()
	return n.session
}

// giveSession takes back the session of a conn, if it has one.
func (p *places) giveSession(n *conn) {
	if n.session != nil {
		p.sessions.give(n.session, n.number)
		n.session = nil
	}
}

// free takes a conn back.
func (p *places) free(n *conn) {
	p.giveSession(n)
	n.state = free
	n.ref, n.lane, n.admissionToken = nil, nil, 0
	p.unused = append(p.unused, n)
}

// pass calls see for some clients from a place on, until it says that it is enough, and
// returns the place to go on at; negative: there is none. A client stays where it is, so none
// is met twice.
func (p *places) pass(at int, see func(at int, n *conn) bool) (next int) {
	began := time.Now()
	for range listLooks {
		slab := at / slabSize
		if slab >= len(p.slabs) {
			return -1
		}
		n := &p.slabs[slab][at%slabSize]
		at++
		if n.state != free && (!see(at-1, n) || time.Since(began) > listTime) {
			break
		}
	}
	return at
}
