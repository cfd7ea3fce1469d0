package worker

import (
	"context"
	"net/netip"
	"reflect"
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

// DialingSize is the size of a client in bytes until it is joined, beside its search.
func DialingSize() uintptr { return reflect.TypeFor[pendingClient]().Size() }

const (
	ListMost  = listMost
	ListLooks = listLooks
)

// ListParts lists the clients of the first core, and returns the number of parts.
func (g *Group) ListParts() (parts, clients int) {
	for at := 0; at >= 0; parts++ {
		p, _ := askPart(context.Background(), g, g.workers[0], func() listing { return g.workers[0].list(0, at, nil) })
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
