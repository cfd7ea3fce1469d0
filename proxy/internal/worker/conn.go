package worker

import (
	"reflect"
	"time"

	"github.com/penstock/penstock/relay"
)

// A conn is a client and, once it is joined, its session. It lives in a slab and is used
// again; an idle session costs one conn, and two slots of the loop's table, so nothing is in
// it that is not needed then.
type conn struct {
	session        relay.Driven // owns both sockets while joined
	next, prev     *conn        // of the list that it is in: unused, young, older
	ref            *listenerRef // of its dialing, or once it is joined of its serving; nil while it is free
	admissionToken uint64       // once it is joined
	fd             int32        // the client's, owned, until it is joined; then the endpoint's, the session's
	slab           uint16
	state          state
	tcp            bool // fd is a TCP socket
}

// worker returns that of a conn that is not free.
func (n *conn) worker() *worker { return n.ref.serving.worker }

type state uint8

const (
	free state = iota
	connecting
	joined
)

// slabSize is how many conns are made at a time: as many as fit into eight of the runtime's
// pages. A slab that is larger than 32 KiB takes whole pages, a smaller one the next size
// class, up to an eighth more.
var slabSize = int(64 << 10 / reflect.TypeFor[conn]().Size())

// A list is a ring of conns around a head that is none.
type list struct{ head conn }

func (l *list) init() { l.head.next, l.head.prev = &l.head, &l.head }

func (l *list) empty() bool { return l.head.next == &l.head }

func (l *list) first() *conn { return l.head.next }

func (l *list) append(n *conn) {
	n.prev, n.next = l.head.prev, &l.head
	l.head.prev.next, l.head.prev = n, n
}

// unlink takes n out of its list, if it is in one.
func (n *conn) unlink() {
	if n.next != nil {
		n.next.prev, n.prev.next = n.prev, n.next
		n.next, n.prev = nil, nil
	}
}

// move appends the elements of o, which is empty then.
func (l *list) move(o *list) {
	if o.empty() {
		return
	}
	first, last := o.head.next, o.head.prev
	first.prev, l.head.prev.next = l.head.prev, first
	last.next, l.head.prev = &l.head, last
	o.init()
}

// places are the conns of a worker, in slabs. A conn never moves.
type places struct {
	slabs  [][]conn
	unused list
}

func (p *places) init() { p.unused.init() }

// take returns a free conn for a client.
func (p *places) take(accepted client) *conn {
	if p.unused.empty() {
		p.grow()
	}
	n := p.unused.first()
	n.unlink()
	n.fd, n.tcp = int32(accepted.fd), accepted.socket.TCP
	return n
}

func (p *places) grow() {
	slab := make([]conn, slabSize)
	for i := range slab {
		slab[i].slab = uint16(len(p.slabs)) // RLIMIT_NOFILE is far below what would not fit
		p.unused.append(&slab[i])
	}
	p.slabs = append(p.slabs, slab)
}

// free takes a conn back.
func (p *places) free(n *conn) {
	n.state = free
	n.ref, n.admissionToken = nil, 0
	p.unused.append(n)
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
