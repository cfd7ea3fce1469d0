package worker

import (
	"context"
	"errors"
	"net/netip"
	"reflect"
	"time"

	"github.com/penstock/penstock/lane"
	"github.com/penstock/penstock/relay"
)

// Duplicate is duplicate.
var Duplicate = duplicate

// SetControl has connecting fail with the error of f. It is called before Serve.
func (g *Group) SetControl(f func() error) { g.control = f }

// SetControlNow is SetControl while it serves.
func (g *Group) SetControlNow(f func() error) {
	for _, w := range g.workers {
		done := make(chan struct{})
		w.post(func() { g.control = f; close(done) })
		<-done
	}
}

// First returns the first socket that was listened on.
func (g *Group) First() *Listening {
	g.mu.Lock()
	defer g.mu.Unlock()
	for l := range g.listenings {
		if l.number == 0 {
			return l
		}
	}
	return nil
}

// Accepted has the first core take a client on at the first socket, as if that had accepted
// it.
func (g *Group) Accepted(fd int, peer netip.AddrPort) {
	w := g.workers[0]
	w.post(func() { g.First().parts[0].Accepted(fd, peer) })
}

// Wake has the loops look at their clocks.
func (g *Group) Wake() {
	for _, w := range g.workers {
		w.post(func() {})
	}
}

// Turn waits until the loops have collected all events that are there now, and called their
// handlers: posted functions are called after those.
func (g *Group) Turn() {
	for _, w := range g.workers {
		for range 2 { // the first may be called in a turn that has collected before
			done := make(chan struct{})
			w.post(func() { close(done) })
			<-done
		}
	}
}

// SetSlabSize has slabs of so many conns made, until restore: while there is no group.
func SetSlabSize(n int) (restore func()) {
	before := slabSize
	slabSize = n
	return func() { slabSize = before }
}

// ConnSize is the size of a session in bytes, and the relay's part of it.
func ConnSize() (all, relays uintptr) {
	t, session := reflect.TypeFor[conn](), reflect.TypeFor[relay.Driven]().Size()
	return t.Size() + session, session
}

// LaneSize is the size of a session's part in the lane in bytes.
func LaneSize() uintptr { return reflect.TypeFor[laneSession]().Size() }

// DialingSize is the size of a client in bytes until it is joined, beside its search.
func DialingSize() uintptr { return reflect.TypeFor[Client]().Size() }

const (
	ListMost  = listMost
	ListLooks = listLooks
)

// ListParts lists the clients of the first core, and returns the number of parts.
func (g *Group) ListParts() (parts, clients int) {
	for at := 0; at >= 0; parts++ {
		type part struct{ clients, next int }
		p, _ := askPart(context.Background(), g, g.workers[0], func() part {
			sessions, next := g.workers[0].list(at, new(Query))
			return part{len(sessions), next}
		})
		clients += p.clients
		at = p.next
	}
	return parts, clients
}

// KeptRecords returns for how many records of sessions there is memory. No session goes on.
func (g *Group) KeptRecords() (n int) {
	for _, w := range g.workers {
		done := make(chan struct{})
		w.post(func() { n += len(w.records.free); close(done) })
		<-done
	}
	return n
}

// SetParts has parts of lists, and of ends, called by f on the loops. It is called before there are any.
func (g *Group) SetParts(f func(part func())) { g.parts = f }

// Simulate joins pairs of descriptors, which are the group's then, to sessions of the first listener on
// a loop, and adds sessions without descriptors, until restore.
func (g *Group) Simulate(loop int, pairs [][2]int, more int) (restore func(), err error) {
	w, l := g.workers[loop], g.First()
	var without []*conn
	on := func(f func()) {
		done := make(chan struct{})
		w.post(func() { f(); close(done) })
		<-done
	}
	on(func() {
		for i := range len(pairs) + more {
			n := w.take()
			s := w.servingOf(l, l.service.Load())
			n.ref = &s.listenerRef
			session := w.takeSession(n)
			if i >= len(pairs) {
				without = append(without, n)
				continue
			}
			a := relay.Socket{FD: pairs[i][0], TCP: true, NoDelay: true, Events: 0}
			b := relay.Socket{FD: pairs[i][1], TCP: true, NoDelay: true}
			var errA, errB error
			a.ID, errA = w.loop.Add(a.FD, whichClient, n)
			b.ID, errB = w.loop.Add(b.FD, whichEndpoint, n)
			if err = errors.Join(err, errA, errB); err != nil {
				return
			}
			l.refs.Add(1)
			g.gate.acquire()
			w.counts.Active++
			w.load.Add(1)
			s.clients++
			n.set(isTCP, true)
			w.driver.StartLimited(session, a, b, n, s.service.Limits)
		}
	})
	restore = func() {
		on(func() {
			for _, n := range without {
				w.free(n)
			}
		})
	}
	return restore, err
}

// A Ring is the last clients of a loop.
type Ring struct{ arrivals }

// NewRing returns one of so many chunks of a size.
func NewRing(chunk, chunks int) *Ring { return &Ring{arrivals{chunk: chunk, most: chunks}} }

// Note notes a client.
func (r *Ring) Note(c *Client, now int64) { r.note(c, now) }

// Since returns those that came after a time, the newest first, by the lowest byte of their addresses, and the
// time that is remembered of it.
func (r *Ring) Since(since, now int64) (list []byte, full time.Duration) {
	for before, more := uint64(0), true; more; {
		p := r.part(before, since, now)
		for i := range p.list {
			b := p.list[i].arrival(1).Source.AddrPort().Addr().AsSlice()
			list = append(list, b[len(b)-1])
		}
		full, before, more = p.full, p.next, p.next > 0
	}
	return list, full
}

// onLoop calls f on a loop.
func (g *Group) onLoop(loop int, f func(w *worker)) {
	w, done := g.workers[loop], make(chan struct{})
	w.post(func() { f(w); close(done) })
	<-done
}

// Depart has the sessions of a loop leave user space, as far as they rest, for a lane that is not there: nothing moves any more, and a session that is
// reset ends at once. It returns how many have left.
func (g *Group) Depart(loop int) (left int) {
	g.onLoop(loop, func(w *worker) {
		if w.lanes.first == nil {
			w.setLane(nil, 0)
		}
		for _, slab := range w.slabs {
			for i := range slab {
				n := &slab[i]
				if n.state != joined || n.lane != nil {
					continue
				}
				c := &laneSession{conn: n, flags: flags[laneFacts]{goneOn}}
				n.lane = c
				a, b := n.descriptors()
				n.session.Offer(c)
				if n.session.Recall() {
					n.session.Withdraw()
					n.lane = nil
					continue
				}
				closeSocket(a)
				closeSocket(b)
				left++
			}
		}
	})
	return left
}

// eachInLane calls do for the clients that have a part in the lane, in one turn.
func (w *worker) eachInLane(do func(n *conn)) {
	for _, slab := range w.slabs {
		for i := range slab {
			if n := &slab[i]; n.lane != nil {
				do(n)
			}
		}
	}
}

// LeaveLaneAlone has no session of a loop leave user space, and returns how many are not withdrawn yet at the end of this turn. One of these is
// offered to the lane then: more says whether it was, or will be.
func (g *Group) LeaveLaneAlone(loop int) (left int, more bool) {
	g.onLoop(loop, func(w *worker) {
		w.setLane(nil, 0)
		w.eachInLane(func(n *conn) {
			if left++; left == 1 {
				n.lane.offer()
				more = w.lanes.gaps.looks.Armed() || n.lane.gap() != noGap
			}
		})
	})
	return left, more
}

// Parked returns how many sessions of a loop are parked, how many of these have timeouts, and how many slabs of sessions there are.
func (g *Group) Parked(loop int) (parked, bound, slabs int) {
	g.onLoop(loop, func(w *worker) {
		w.eachInLane(func(n *conn) {
			if n.parked() {
				parked++
			}
		})
		if w.lanes.park != nil {
			bound = w.lanes.park.bound
		}
		for _, s := range w.sessions.slabs {
			if s != nil {
				slabs++
			}
		}
	})
	return parked, bound, slabs
}

// EachDeparted calls f on a loop for the sessions that have left, with the lane's owner of them.
func (g *Group) EachDeparted(loop int, f func(lane.Observer, *lane.Session)) {
	g.onLoop(loop, func(w *worker) { w.eachInLane(func(n *conn) { f((*laneOwner)(w), &n.lane.session) }) })
}

// SpareSlabs is how many empty slabs are kept.
const SpareSlabs = spareSlabs

// SlabSizes are the sizes in bytes of a slab of sessions, and of conns.
func SlabSizes() (sessions, conns uintptr) {
	return reflect.TypeFor[sessionSlab]().Size(), uintptr(slabSize) * reflect.TypeFor[conn]().Size()
}

// UnusedRoom returns for how many conns a list of unused ones has room when n of them have come and gone, and when as many are there again.
func UnusedRoom(n int) (gone, again int) {
	var p places
	var all []*conn
	for range n {
		all = append(all, p.take())
	}
	for _, c := range all {
		p.free(c)
	}
	gone = cap(p.unused)
	for range n {
		p.take()
	}
	return gone, cap(p.unused)
}

// Span returns a time as laneTimes keep it.
func Span(t time.Duration) time.Duration { return newSpan(t).time() }

// Tried returns a time at which packets began to try as laneTimes keep it.
func Tried(at uint32) uint32 {
	t := triedAt(at)
	return t.tried()
}

// Prepared has the sessions of a loop be prepared for a lane that has ended them since, or have come back from it, and returns them, and the
// lane's owner of them.
func (g *Group) Prepared(loop int, back bool) (owner lane.Owner, sessions []*lane.Session) {
	g.onLoop(loop, func(w *worker) {
		if w.lanes.first == nil {
			w.setLane(nil, 0)
		}
		for _, slab := range w.slabs {
			for i := range slab {
				if n := &slab[i]; n.state == joined && n.lane == nil {
					n.lane = &laneSession{conn: n}
					n.lane.set(cameBack, back)
					sessions = append(sessions, &n.lane.session)
				}
			}
		}
	})
	return (*laneOwner)(g.workers[loop]), sessions
}

// LaneQueued returns how many entries of sessions of a loop wait to be asked whether they may leave user space.
func (g *Group) LaneQueued(loop int) (n int) {
	g.onLoop(loop, func(w *worker) {
		if t := &w.lanes; t.first != nil {
			n = len(t.first.list) + len(t.again.list)
		}
	})
	return n
}

// PrereadMemory is what clients have of [Config.PrereadMemory].
func (g *Group) PrereadMemory() int64 { return g.prereads.Load() }
