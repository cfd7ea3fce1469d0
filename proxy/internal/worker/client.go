package worker

import (
	"context"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/proxy/clienthello"
	"github.com/penstock/penstock/proxy/internal/firstbytes"
	"github.com/penstock/penstock/proxy/internal/proxyproto"
	"github.com/penstock/penstock/proxy/internal/record"
	"github.com/penstock/penstock/proxy/internal/source"
)

// A Client is the known properties of a client until it is joined. It is used again for
// others, so it must not be kept; but for its Waker it belongs to the loop's goroutine.
type Client struct {
	// Hello is the contents of its ClientHello, where [Preread.Hello] is set, or First needs it.
	Hello clienthello.Info
	// First is what its first bytes have shown, where [Preread.First] is set.
	First firstbytes.Facts
	// Header is the contents of its PROXY header; its Version is 0 if there was none.
	Header proxyproto.Info
	// Looked is the client's first bytes, after [Look], during the next call of [Search.Next] alone, and
	// LookedEnded says that no more come.
	Looked      []byte
	LookedEnded bool
	// Postgres is what it has said by the protocol of PostgreSQL, where [Preread.Postgres] is set.
	Postgres PostgresClient
	// AdmissionToken is the [Admitter]'s, which gets it back when the client has left; 0: none. It is a number, for
	// every session that rests keeps one.
	AdmissionToken uint64
	// Record is the course of the client so far; nil: none is kept. Its methods may be called
	// all the same.
	Record *record.Record

	listening   *Listening
	loop        int
	fd          int // borrowed; negative: there is none to be asked
	tcp         bool
	asked       [2]bool
	peer        source.Source // of TCP from the beginning, of a unix socket once it was asked for
	destination netip.AddrPort
	original    netip.AddrPort // where fd cannot be asked any more; invalid: as destination
	wakes       wakeable
	use         uint64
}

// NewClient returns a client with known addresses, for callers without a loop.
func NewClient(peer source.Source, destination netip.AddrPort) *Client {
	return &Client{fd: -1, peer: peer, destination: destination}
}

// Source returns where the client comes from: the address of its PROXY header if that has one,
// otherwise the connection's other end.
func (c *Client) Source() source.Source {
	if c.Header.Known() {
		return source.TCP(c.Header.Source)
	}
	return c.Peer()
}

// Destination returns the address that the client has connected to: that of its PROXY header
// if that has one, otherwise that of the connection's own end, which is the original one where
// TPROXY has brought it. It is not valid for a unix socket.
func (c *Client) Destination() netip.AddrPort {
	if c.Header.Known() {
		return c.Header.Destination
	}
	return c.Local()
}

// Local returns the address of the connection's own end, whatever a header says; it is not valid
// for a unix socket.
func (c *Client) Local() netip.AddrPort {
	if c.tcp && c.ask(askedLocal) {
		c.destination = localOf(c.fd)
	}
	return c.destination
}

// Original returns the address that the client has connected to before a NAT rule of
// this machine redirected it, and that of the connection's own end if there was none,
// whatever a header says: a client may write any address into that.
func (c *Client) Original() netip.AddrPort {
	if c.fd >= 0 && c.tcp {
		if at := originalOf(c.fd); at.IsValid() {
			return at
		}
	}
	if c.original.IsValid() {
		return c.original
	}
	return c.Local()
}

// leave asks for every address while the descriptor is there, which is about to be another
// owner's.
func (c *Client) leave() {
	c.Peer()
	c.Local()
	c.original = c.Original()
	c.fd = -1
}

// Peer returns the connection's other end, whatever a header says. A client of TCP has come
// with its address; the kernel is asked for the credentials of one of a unix socket the first
// time, so only callers that need them pay for it.
func (c *Client) Peer() source.Source {
	if !c.tcp && c.ask(askedPeer) {
		c.peer = unixPeerOf(c.fd)
	}
	return c.peer
}

// Questions to the kernel.
const (
	askedPeer = iota
	askedLocal
)

// ask reports whether something has to be asked for, which it is once.
func (c *Client) ask(which int) bool {
	if c.asked[which] || c.fd < 0 {
		return false
	}
	c.asked[which] = true
	return true
}

// Listening returns where the client came in; nil for one that was made by NewClient.
func (c *Client) Listening() *Listening { return c.listening }

// Loop returns the index of the loop that the client came in by.
func (c *Client) Loop() int { return c.loop }

// Waker returns the Waker that ends the client's parking.
func (c *Client) Waker() Waker { return Waker{c.wakes, c.use} }

// keptTLVs is how much memory a client's header leaves to the next.
const keptTLVs = 512

// reset makes c the Client of no client.
func (c *Client) reset() {
	c.Header.Reset()
	if cap(c.Header.TLVs) > keptTLVs {
		c.Header.TLVs = nil
	}
	*c = Client{Header: c.Header, wakes: c.wakes, fd: -1}
}

// bind makes c that of a connection.
func (c *Client) bind(l *Listening, fd int, peer netip.AddrPort) {
	c.listening, c.fd, c.tcp, c.peer = l, fd, l.TCP, source.TCP(peer)
}

func unixPeerOf(fd int) source.Source {
	peer, err := sys.PeerCredentials(fd)
	if err != nil {
		return source.Source{}
	}
	return source.Unix(source.Credentials(peer))
}

func localOf(fd int) netip.AddrPort {
	name, err := sys.LocalName(fd)
	if err != nil {
		return netip.AddrPort{}
	}
	return unmapped(name.AddrPort)
}

// originalOf asks netfilter, which knows no connection that it has not redirected.
func originalOf(fd int) netip.AddrPort {
	at, err := sys.OriginalDestination(fd)
	if err != nil {
		return netip.AddrPort{}
	}
	return unmapped(at)
}

// unmapped turns an IPv4-mapped address of an IPv6 socket into the IPv4 address.
func unmapped(at netip.AddrPort) netip.AddrPort {
	if !at.IsValid() {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}

// pendingClient is the state of a client until it is joined. It is used again for others.
type pendingClient struct {
	loop.Dial
	listenerRef
	worker       *worker // for good
	conn         *conn
	client       Client
	search       Search // nil before it has begun
	step         Step
	cfg          loop.DialConfig
	id           loop.ID     // the client's registration
	events       loop.Events // of the client until now
	phase        phase
	refused      bool   // it was, and gets the bytes of step
	reserved     bool   // there is a spare for the endpoint's socket
	admitted     bool   // Released has to be called at its end
	undelayed    bool   // the endpoint's TCP_NODELAY is set
	raised       int32  // value of the client's low-water mark; 0 if it is not raised
	ahead        []byte // bytes that the client has sent, as far as a peek has shown; they are queued
	buffered     []byte // bytes taken out of its queue; nil: none
	charged      int32  // what it has of the group's PrereadMemory
	hello        firstHello
	futilePeeks  uint8 // peeks that have shown too little, see inVain
	moved        int   // how much of ahead, or of buffered, the endpoint has got already
	timer        loop.Timer
	endpoint     endpoint           // while its header is written
	rest         []byte             // of the header, or of a response
	use          uint64             // number of the use of this struct
	hung         atomic.Uint64      // one more than the use whose client has hung up
	cancelLookup context.CancelFunc // of the name that is resolved; nil: none is
	lookup       uint64             // number of it, over all uses
	began        int64              // clock when the client was taken on
	record       *record.Record     // of this client; nil: none is kept
	ownRecord    *record.Record     // memory of record; nil: there was none yet
	waitsForFD   int64              // clock since when it has lacked a descriptor; 0 if it does not
	next         *pendingClient     // of those that are not used
}

// An endpoint is a connection that is not joined yet.
type endpoint struct {
	fd     int // owned; negative: there is none
	id     loop.ID
	events loop.Events
}

// begin begins to serve a client, which has a place. reserved says that there is a
// spare for it.
func (w *worker) begin(accepted client, reserved bool) {
	n, s := w.take(accepted), w.servingOf(accepted)
	w.accepted++
	w.active++
	s.clients++
	n.state = connecting
	if !n.tcp() {
		_ = s.service.Options.First(accepted.fd) // without it, it is a connection like any other
	}
	c := w.newPending(n, s, accepted.peer)
	w.recordPending(c, accepted.accepted)
	c.reserved, c.admitted, c.client.AdmissionToken = reserved, s.service.Admitter != nil, accepted.admissionToken
	if w.canceled != nil {
		w.refuse(c, w.canceled)
		return
	}
	var err error
	if c.id, err = w.loop.Add(n.fd(), whichClient, n); err != nil {
		w.refuse(c, err)
		return
	}
	w.preread(c)
}

func (w *worker) newPending(n *conn, s *serving, peer netip.AddrPort) *pendingClient {
	c := w.pendingPool.get()
	if c == nil {
		c = &pendingClient{worker: w}
		c.cfg.Control, c.listenerRef.pending, c.client.wakes = c.control, c, c
	}
	c.conn, n.ref, c.next, c.events, c.began, c.phase = n, &c.listenerRef, nil, 0, w.loop.Now(), dialing
	c.serving, c.endpoint.fd, c.refused = s, -1, false
	c.client.use = c.use
	c.client.bind(s.socket, n.fd(), peer)
	c.client.loop = w.index
	return c
}

// freePending ends the use of c.
func (w *worker) freePending(c *pendingClient) {
	c.stopLookup()
	w.unreserve(c)
	w.fdAvailable(c)
	w.loop.Disarm(&c.timer)
	w.endSearch(c)
	c.dropEndpoint()
	c.use++
	c.client.reset()
	c.conn, c.id, c.serving, c.step, c.rest, c.raised = nil, 0, nil, Step{}, nil, 0
	w.group.uncharge(&c.charged)
	c.hello.size = 0
	c.ahead, c.buffered, c.futilePeeks, c.moved, c.record = c.ahead[:0], nil, 0, 0, nil
	w.pendingPool.put(c)
}

// A pendingPool is pending clients that are not used.
type pendingPool struct {
	first  *pendingClient
	number int
}

// get takes one out; nil if there is none.
func (p *pendingPool) get() *pendingClient {
	c := p.first
	if c != nil {
		p.first = c.next
		p.number--
	}
	return c
}

// put keeps one, unless there are enough.
func (p *pendingPool) put(c *pendingClient) {
	if p.number < maxSpare {
		p.number++
		c.next, p.first = p.first, c
	}
}

// maxSpare is how many objects of a kind that clients need until they are joined are kept for
// the next ones: those of a flood of clients are not kept for ever.
const maxSpare = 1024

// Ready is called for a client that is not joined yet. Its data can wait, except in preread,
// and its end of file too, after which it may still want an answer; one that has gone is not
// served.
func (n *conn) Ready(_ uint8, events loop.Events) {
	c := n.ref.pending
	if c == nil {
		return
	}
	c.events |= events
	if events&loop.HungUp != 0 {
		c.hung.Store(c.use + 1)
	}
	switch {
	case n.hasGone(events):
		n.worker().clientLeft(c)
	case c.phase.prereads():
		if events&arrived != 0 || events == 0 {
			n.worker().peek(c)
		}
	case c.phase == responding || c.phase == lingering:
		n.worker().respondOn(c)
	}
}

// hasGone reports whether a client will neither take nor give anything any more: it was reset,
// or has closed a unix socket with nothing left in it. A closed client of TCP looks like one
// that only sends no more (tcp(7)).
func (n *conn) hasGone(events loop.Events) bool {
	if events&loop.Failed != 0 {
		return true
	}
	if events&loop.HungUp == 0 {
		return false
	}
	queued, err := sys.FIONREAD(n.fd())
	return err == nil && queued == 0
}

// A phase is the wait of a client that is not joined.
type phase uint8

const (
	dialing       phase = iota // a connection to the endpoint, its address, or a descriptor for it
	awaitHeader                // of the PROXY protocol
	awaitHello                 // the ClientHello
	awaitData                  // the first byte
	awaitFirst                 // first bytes that decide the route
	awaitSilence               // the same, or that none has come for a time
	looking                    // the first bytes, for its search
	awaitPostgres              // a message of PostgreSQL
	awaitAnswer                // the endpoint's to an SSLRequest of PostgreSQL
	pausing                    // the end of a pause
	parked                     // to be woken
	writingHeader              // room for the rest of the PROXY header, at the endpoint
	responding                 // room for the rest of the response
	lingering                  // the client's end of file, after the response
)

// state returns its state in a list.
func (p phase) state() State {
	switch p {
	case awaitHeader, awaitHello, awaitData, awaitFirst, awaitSilence, awaitPostgres, looking:
		return Prereading
	case pausing, parked:
		return Waiting
	case responding, lingering:
		return Responding
	default:
		return Dialing
	}
}

// prereads reports whether the client's bytes are looked at.
func (p phase) prereads() bool { return awaitHeader <= p && p <= awaitPostgres }

// recognises reports whether they are looked at for their protocol.
func (p phase) recognises() bool { return p == awaitFirst || p == awaitSilence }

// A clientTimer is the timeout of the phase of a client that is not joined.
type clientTimer pendingClient

func (t *clientTimer) Expired(*loop.Timer) {
	c := (*pendingClient)(t)
	w := c.worker
	switch c.phase {
	case awaitHeader:
		w.refuse(c, ErrHeaderTimeout)
	case awaitHello, awaitData, awaitFirst, awaitPostgres, looking:
		w.prereadFailed(c, ErrPrereadTimeout)
	case awaitSilence:
		w.silenceOver(c)
	case awaitAnswer:
		w.failedAnswer(c, os.ErrDeadlineExceeded)
	case dialing:
		w.askAbandon(c)
	case pausing, parked:
		w.proceed(c)
	case writingHeader:
		w.failedProxyHeader(c, os.ErrDeadlineExceeded)
	case responding, lingering:
		w.closeClient(c)
	}
}

// A Waker ends the parking of one client, see [Park]. It may be kept for any time: when the
// client is not parked any more, or not there, it does nothing. It is comparable; the zero
// value wakes no client.
type Waker struct {
	to  wakeable
	use uint64
}

// Wake has the client's [Search] asked for its next step, soon, on its loop. It may be called
// by any goroutine at any time, and does not wait.
func (w Waker) Wake() {
	if w.to != nil {
		w.to.wake(w.use)
	}
}

// HungUp reports whether the client has closed its connection both ways, so that it waits for
// no answer, though it has left bytes that an endpoint may still get. It is known of unix sockets
// alone: of TCP such a client looks like one that only sends no more. It may be called by any
// goroutine.
func (w Waker) HungUp() bool { return w.to != nil && w.to.hungUp(w.use) }

// wakeable is a client that can be parked. use distinguishes its uses.
type wakeable interface {
	wake(use uint64)
	hungUp(use uint64) bool
}

// WakerFunc returns a Waker that calls f, which must not wait, for searches that go on
// where there is no loop.
func WakerFunc(f func()) Waker { return Waker{to: &wakeFunc{f}} }

type wakeFunc struct{ f func() }

func (w *wakeFunc) wake(uint64) { w.f() }

// hungUp is not known of a client on a goroutine.
func (w *wakeFunc) hungUp(uint64) bool { return false }

// wakes are clients of a worker that are to be woken.
type wakes struct {
	mu  sync.Mutex
	due []wake

	now  []wake // the worker's own: those that it is waking
	next int    // of those
}

type wake struct {
	client *pendingClient
	use    uint64
}

// wake implements [wakeable].
func (c *pendingClient) wake(use uint64) {
	w := &c.worker.wakes
	w.mu.Lock()
	w.due = append(w.due, wake{c, use})
	first := len(w.due) == 1
	w.mu.Unlock()
	if first {
		c.worker.post(c.worker.wakeOn)
	}
}

// hungUp implements [wakeable].
func (c *pendingClient) hungUp(use uint64) bool { return c.hung.Load() == use+1 }

// take returns the next one that is to be woken.
func (w *wakes) take() (due wake, ok bool) {
	if w.next == len(w.now) {
		w.mu.Lock()
		w.now, w.due, w.next = w.due, w.now[:0], 0
		w.mu.Unlock()
	}
	if len(w.now) == 0 {
		return due, false
	}
	due, w.now[w.next] = w.now[w.next], wake{}
	w.next++
	return due, true
}

// collectWakes wakes those that are still parked, for as long as one turn may take.
func (w *worker) collectWakes() {
	for began := time.Now(); time.Since(began) < turnTime; {
		due, ok := w.wakes.take()
		if !ok {
			return
		}
		if c := due.client; c.use == due.use && c.phase == parked {
			w.loop.Disarm(&c.timer)
			w.proceed(c)
		}
	}
	w.post(w.wakeOn)
}
