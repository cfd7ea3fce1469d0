package worker

import (
	"context"
	"errors"
	"net/netip"
	"reflect"
	"time"

	"github.com/penstock/penstock/relay"
)

// SendSome sends a PROXY header or a response.
var SendSome = sendSome

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
	t := reflect.TypeFor[conn]()
	session, _ := t.FieldByName("session")
	return t.Size(), session.Type.Size()
}

// LaneSize is the size of a session's part in the lane in bytes.
func LaneSize() uintptr { return reflect.TypeFor[laneSession]().Size() }

// DialingSize is the size of a client in bytes until it is joined, beside its search.
func DialingSize() uintptr { return reflect.TypeFor[pendingClient]().Size() }

const (
	ListMost  = listMost
	ListLooks = listLooks
)

// ListParts lists the clients of the first core, and returns the number of parts.
func (g *Group) ListParts() (parts, clients int) {
	for at := 0; at >= 0; parts++ {
		p, _ := askPart(context.Background(), g, g.workers[0], func() listing { return g.workers[0].list(0, at, new(Query)) })
		clients += len(p.sessions)
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
			n := w.take(client{fd: -1, socket: l})
			s := w.servingOf(client{socket: l, service: l.service.Load()})
			n.ref, n.state = &s.listenerRef, joined
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
			w.active++
			w.load.Add(1)
			s.clients++
			n.fd, n.tcp = int32(b.FD), true
			w.driver.StartLimited(&n.session, a, b, n, s.service.Limits)
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
	for before, end := uint64(0), false; !end; {
		p := r.part(before, since, now)
		for i := range p.list {
			b := p.list[i].arrival(1).Source.AddrPort().Addr().AsSlice()
			list = append(list, b[len(b)-1])
		}
		full, before, end = p.full, p.next, p.end || p.next == 0
	}
	return list, full
}
