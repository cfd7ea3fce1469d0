package worker

import (
	"math"
	"net/netip"
	"reflect"
	"time"

	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/relay"
)

// A conn is a client and, once it is joined, its session. It lives in a slab and is used again. An idle session costs one
// conn, its session, and two slots of the loop's table, so a conn holds only what an idle session needs. A session that
// left user space long ago has neither a relay.Driven nor slots.
type conn struct {
	session        *relay.Driven // from the pool; owns both sockets. nil unless joined, and while parked
	lane           *laneSession  // the session's part in the lane; nil: it has none
	ref            *listenerRef  // in its Client or, once joined, in its serving; nil while the conn is free
	admissionToken uint64        // set when it is joined
	number         int32         // of the slab of its session; while that is parked, see due
	slab           uint16
	state          state
	flags[connFacts]
}

type connFacts uint8

const (
	isTCP     connFacts = 1 << iota // the endpoint's socket is a TCP socket
	waitsLane                       // it will be asked whether its session may leave user space
	adopted                         // the session began in an earlier process
	unsent                          // bytes were on the way to a peer at the last pass of windows
)

// flags are facts, each with a bit.
type flags[T ~uint8] struct{ facts T }

func (l *flags[T]) is(f T) bool { return l.facts&f != 0 }

func (l *flags[T]) set(f T, on bool) {
	if l.facts &^= f; on {
		l.facts |= f
	}
}

// tcp reports whether a joined client's endpoint has a TCP socket.
func (n *conn) tcp() bool { return n.is(isTCP) }

// worker returns the worker of a conn that is not free.
func (n *conn) worker() *worker { return n.ref.serving.worker }

type state uint8

const (
	free state = iota
	connecting
	joined
)

// slabSize is how many conns are made at a time: as many as fit into a size class of the runtime, together with the
// runtime's own word.
var slabSize = int((8<<10 - 8) / reflect.TypeFor[conn]().Size())

// places are the conns of a worker, in slabs. A conn never moves.
type places struct {
	slabs    [][]conn
	unused   []*conn
	sessions sessionPool
}

func (p *places) take() *conn {
	if len(p.unused) == 0 {
		p.grow()
	}
	last := len(p.unused) - 1
	n := p.unused[last]
	if p.unused = p.unused[:last]; cap(p.unused) > 4*max(last, slabSize) { // so that the list of a peak is freed
		p.unused = append(make([]*conn, 0, cap(p.unused)/2), p.unused...)
	}
	n.facts = 0
	return n
}

func (p *places) grow() {
	slab := make([]conn, slabSize)
	for i := range slab {
		slab[i].slab = uint16(len(p.slabs)) // RLIMIT_NOFILE keeps the number below 1<<16
		p.unused = append(p.unused, &slab[len(slab)-1-i])
	}
	p.slabs = append(p.slabs, slab)
}

// takeSession makes a conn joined, with a session from the pool that the caller starts or unparks.
func (p *places) takeSession(n *conn) *relay.Driven {
	n.state = joined
	n.session, n.number = p.sessions.take()
	return n.session
}

func (p *places) giveSession(n *conn) {
	if n.session != nil {
		p.sessions.give(n.session, n.number)
		n.session = nil
	}
}

func (p *places) free(n *conn) {
	p.giveSession(n)
	n.state = free
	n.ref, n.lane, n.admissionToken = nil, nil, 0
	p.unused = append(p.unused, n)
}

// pass calls see for clients beginning at a place, as many as one turn has time for, until see returns false. It
// returns the place at which to continue, or a negative number at the end. Clients do not move, so no client is seen
// twice.
func (p *places) pass(at int, see func(at int, n *conn) bool) (next int) {
	began := time.Now()
	for looks := range listLooks {
		slab := at / slabSize
		if slab >= len(p.slabs) {
			return -1
		}
		n := &p.slabs[slab][at%slabSize]
		at++
		if n.state != free && !see(at-1, n) || looks%passLooks == passLooks-1 && time.Since(began) > turnTime {
			break
		}
	}
	return at
}

// The session of a joined client is a relay.Driven from the pool or, once it has been out of user space for a while, a
// relay.Parked in its part in the lane. Code that only reads it uses it in either form; all other code calls driven.

func (n *conn) parked() bool { return n.session == nil }

// driven returns the session of a joined client. It unparks the session, which stays unparked for a second at least.
func (n *conn) driven() *relay.Driven {
	if n.parked() {
		n.worker().unpark(n)
	}
	return n.session
}

func (n *conn) limits() *relay.Limits {
	if n.parked() {
		return n.lane.parked.Limits()
	}
	return n.session.Limits()
}

func (n *conn) binding() Binding { return bindingOf(n.limits()) }

func (n *conn) result() relay.Result {
	if n.parked() {
		return n.lane.parked.Result(n.worker().driver, n.lane)
	}
	return n.session.Result()
}

// idle returns how long a joined client has moved no byte.
func (n *conn) idle() time.Duration {
	if n.parked() {
		return n.lane.parked.Idle(n.worker().driver, n.lane)
	}
	return n.session.Idle()
}

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

func (n *conn) legs() relay.Legs {
	if n.parked() {
		return relay.Legs{}
	}
	return n.session.Legs()
}

const (
	// sessionsPerSlab sessions fill a size class of the runtime, 8 KiB.
	sessionsPerSlab = 29
	// spareSlabs is how many empty slabs are kept.
	spareSlabs = 8
)

// A sessionPool holds the relay's parts of a worker's sessions in user space, in slabs. Sessions that left long ago
// give up their parts (see lanePark), and slabs without a session are freed.
type sessionPool struct {
	slabs []*sessionSlab // by number; nil: freed
	gone  []int32        // numbers of freed slabs
	open  []int32        // numbers of slabs with a free session
	empty int            // number of slabs without a session
}

type sessionSlab struct {
	sessions [sessionsPerSlab]relay.Driven
	free     [sessionsPerSlab]uint8 // the first left of these are the free places
	left     uint8
	at       int32 // index in sessionPool.open
}

// take returns a free session, and the number of its slab.
func (t *sessionPool) take() (*relay.Driven, int32) {
	if len(t.open) == 0 {
		t.grow()
	}
	last := len(t.open) - 1
	number := t.open[last]
	s := t.slabs[number]
	if s.left == sessionsPerSlab {
		t.empty--
	}
	s.left--
	d := &s.sessions[s.free[s.left]]
	if s.left == 0 {
		t.open = t.open[:last]
	}
	return d, number
}

func (t *sessionPool) grow() {
	s := &sessionSlab{left: sessionsPerSlab}
	for i := range s.sessions {
		s.free[i] = uint8(sessionsPerSlab - 1 - i)
	}
	number := int32(min(len(t.slabs), math.MaxInt32)) // there are far fewer descriptors
	if last := len(t.gone) - 1; last >= 0 {
		number, t.gone = t.gone[last], t.gone[:last]
		t.slabs[number] = s
	} else {
		t.slabs = append(t.slabs, s)
	}
	t.empty++
	t.opened(s, number)
}

func (t *sessionPool) opened(s *sessionSlab, number int32) {
	s.at = int32(len(t.open))
	t.open = append(t.open, number)
}

func (s *sessionSlab) placeOf(d *relay.Driven) uint8 {
	for i := range s.sessions {
		if &s.sessions[i] == d {
			return uint8(i)
		}
	}
	return 0 // not reached: d is one of them
}

// give takes back a session of a slab. Its caller may still read the session.
func (t *sessionPool) give(d *relay.Driven, number int32) {
	s := t.slabs[number]
	s.free[s.left] = s.placeOf(d)
	if s.left++; s.left == 1 {
		t.opened(s, number)
	}
	if s.left < sessionsPerSlab {
		return
	}
	if t.empty++; t.empty > spareSlabs {
		t.empty--
		last := t.open[len(t.open)-1]
		t.open[s.at], t.slabs[last].at = last, s.at
		t.open = t.open[:len(t.open)-1]
		t.slabs[number], t.gone = nil, append(t.gone, number)
	}
}

func (w *worker) join(c *Client) {
	if err := c.listening.refusesLate(); err != nil {
		w.refuse(c, err)
		return
	}
	limits, err := c.search.Reached(w.loop.Now())
	switch {
	case err != nil && c.moved > 0:
		w.refuse(c, err)
		return
	case err != nil:
		c.dropEndpoint()
		w.proceed(c)
		return
	}
	n, e, s := c.conn, c.endpoint, c.serving
	if limits == nil {
		limits = s.service.Limits
	}
	m := w.mirror(c.search, s, c.buffered[:c.moved])
	if err := c.drain(); err != nil {
		c.events |= loop.Failed
	}
	ahead := c.buffered[c.moved:]
	if len(ahead) > 0 {
		c.events |= loop.Readable
		c.room = nil // the session has it
	}
	a := relay.Socket{FD: c.fd, ID: c.id, Events: c.events, TCP: c.tcp, NoDelay: true, Moved: c.moved, Ahead: ahead, Mirror: m.relay()} // NoDelay and SO_OOBINLINE are inherited
	b := relay.Socket{FD: e.fd, ID: e.id, Events: e.events, TCP: c.step.Address.Path == "", NoDelay: c.undelayed}
	if c.search.Rewritten() != relay.SideNone {
		a, b = rewrite(c.search, a, b)
	}
	a.Gate, a.Free = c.hello.gate(w, c.moved, &c.charged)
	w.note(n, c)
	n.admissionToken = w.counted(s, c.AdmissionToken, c.Source)
	ref := w.keepPending(c, bindingOf(limits))
	c.endpoint.fd = -1
	w.freeClient(c)
	n.ref = ref
	if b.TCP { // a unix socket has none of these options
		s.lateSockopts.apply(n)
	}
	w.start(n, a, b, limits, m)
}

// start begins the session of a client that is joined, with its mirror, if any.
func (w *worker) start(n *conn, a, b relay.Socket, limits *relay.Limits, m *mirroring) {
	n.set(isTCP, b.TCP)
	session := w.takeSession(n)
	w.windows.begin(n)
	if n.ref.serving.service.Lane != LaneOff {
		w.awaitLane(n)
	}
	w.driver.StartLimited(session, a, b, n, limits)
	m.reach()
}

// notes hold what only few sessions have. They are kept beside the conns, so that other sessions do not pay for them.
type notes struct {
	sources map[*conn]netip.AddrPort // of clients that have one in a PROXY header
	ends    map[*conn]func()         // to be called at the end of sessions that have rejoined
}

func (t *notes) note(n *conn, c *Client) {
	if c.Header.Known() {
		t.sources[n] = c.Header.Source
	}
}

func (t *notes) forget(n *conn) {
	if ended := t.ends[n]; ended != nil {
		delete(t.ends, n)
		ended()
	}
	delete(t.sources, n)
}
