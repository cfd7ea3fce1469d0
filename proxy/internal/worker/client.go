package worker

import (
	"context"
	"net/netip"
	"os"
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

// A Client is one client on its way to an endpoint, from its accept until it is joined, refused or gone.
// It belongs to one goroutine, its loop's or its [Offloaded]'s; only its Waker may be used by any. It is used again for
// other clients, so it must not be kept.
type Client struct {
	facts
	progress

	// Not cleared for the next client:
	worker *worker
	listenerRef
	dial      loop.Dial
	cfg       loop.DialConfig
	timer     loop.Timer
	room      []byte         // memory for buffered
	ownRecord *record.Record // memory for Record; nil until it is needed
	use       uint64         // counts the clients that have used it
	hung      atomic.Uint64  // the use in which the client has probably gone, plus one
	lookup    uint64         // counts the names resolved
}

type facts struct {
	// Hello is the client's ClientHello, if [Preread.Hello] is set or First needs it.
	Hello clienthello.Info
	// First is what the first bytes have shown, if [Preread.First] is set.
	First firstbytes.Facts
	// Header is the client's PROXY header; its Version is 0 if there was none.
	Header proxyproto.Info
	// Looked is the client's first bytes after [Look], only during the next call of [Search.Next]; LookedEnded says that no
	// more come.
	Looked      []byte
	LookedEnded bool
	// Postgres is what the client has said by the protocol of PostgreSQL, if [Preread.Postgres] is set.
	Postgres PostgresClient
	// AdmissionToken belongs to the [Admitter], which gets it back when the client has left; 0: none.
	// It is a number because every resting session keeps one.
	AdmissionToken uint64
	// SplitPlace belongs to the [Search]: the client's place among the clients that a route splits; 0: it has none yet.
	SplitPlace uint64
	// ID is the ID of the client's record, whether a record is kept or not.
	ID record.ID
	// Record is the client's course so far; nil: no record is kept. Its methods may be called on nil.
	Record *record.Record

	listening   *Listening
	fd          int // owned until the client is joined or handed over; negative: there is none
	tcp         bool
	askedPeer   bool
	askedLocal  bool
	peer        source.Source // known from the beginning for TCP, after the first question for a unix socket
	destination netip.AddrPort
	original    netip.AddrPort // before NAT, once it was asked for; invalid: use destination
}

type progress struct {
	conn         *conn
	search       Search // nil before it has begun
	step         Step
	id           loop.ID     // the client's registration
	events       loop.Events // of the client so far
	phase        phase
	refused      bool   // the client was refused, and gets step.Bytes
	reserved     bool   // there is a spare descriptor for the endpoint's socket
	admitted     bool   // Admitter.Released has to be called at the end
	undelayed    bool   // the endpoint's TCP_NODELAY is set
	futilePeeks  uint8  // see futilePeek
	raised       int32  // the client's low-water mark; 0 if it is not raised
	charged      int32  // the client's part of the group's PrereadMemory
	buffered     []byte // the client's first bytes that have decided something, or were taken out of its queue; nil: none
	unread       int    // how many of them are still in its queue
	moved        int    // how many of them the endpoint has got already
	hello        firstHello
	endpoint     endpoint           // while the PROXY header is written
	rest         []byte             // of the PROXY header, or of a response
	cancelLookup context.CancelFunc // cancels the look-up under way; nil: there is none
	began        int64              // clock at which the client was taken on
	waitsForFD   int64              // clock since which it has lacked a descriptor; 0: it does not
}

// An endpoint is a connection that is not joined yet.
type endpoint struct {
	fd     int // owned; negative: there is none
	id     loop.ID
	events loop.Events
}

// An accepted is a client for which nothing was done yet. It waits for a place, or for another worker to take it on.
type accepted struct {
	fd             int            // owned
	peer           netip.AddrPort // as [loop.Acceptor] gives it
	socket         *Listening
	service        *Service
	admissionToken uint64 // from the service's Admitter
	at             int64  // clock

	spare *os.File // owned: descriptor kept for the target during the hand-over; nil: none
}

// NewClient returns a client with known addresses, for callers without a loop.
func NewClient(peer source.Source, destination netip.AddrPort) *Client {
	return &Client{facts: facts{fd: -1, peer: peer, destination: destination}}
}

// Source returns where the client comes from: the address in its PROXY header, if the header has one, otherwise the
// connection's other end.
func (c *Client) Source() source.Source {
	if c.Header.Known() {
		return source.TCP(c.Header.Source)
	}
	return c.Peer()
}

// Destination returns the address to which the client has connected: the address in its PROXY header, if the header
// has one, otherwise the local address of the connection, which is the original destination if TPROXY is used. It is
// not valid for a unix socket.
func (c *Client) Destination() netip.AddrPort {
	if c.Header.Known() {
		return c.Header.Destination
	}
	return c.Local()
}

// Local returns the address of the connection's own end, whatever a header says; it is not valid
// for a unix socket.
func (c *Client) Local() netip.AddrPort {
	if c.tcp && c.ask(&c.askedLocal) {
		if name, err := sys.LocalName(c.fd); err == nil {
			c.destination = unmapped(name.AddrPort)
		}
	}
	return c.destination
}

// Original returns the destination of the client before a NAT rule of this machine redirected
// it, if there was such a rule. It ignores a PROXY header: a client may write any address into
// it.
func (c *Client) Original() netip.AddrPort {
	if at := c.Tracked(); at.IsValid() {
		return at
	}
	return c.Local()
}

// Tracked returns the same, but is not valid if the kernel tracks no connections, or not this one.
func (c *Client) Tracked() netip.AddrPort {
	if c.fd >= 0 && c.tcp && !c.original.IsValid() {
		if at, err := sys.OriginalDestination(c.fd, c.peer.AddrPort().Addr().Is4()); err == nil && at.IsValid() {
			c.original = unmapped(at)
		}
	}
	return c.original
}

// leave asks for every address while the descriptor is there, before it gets another owner.
func (c *Client) leave() {
	c.Peer()
	c.Local()
	c.original = c.Original()
	c.fd = -1
}

// Peer returns the connection's other end, whatever a header says. The address of a TCP client
// comes with accept. For a client of a unix socket the first call asks the kernel for credentials,
// so only callers that need them pay for this.
func (c *Client) Peer() source.Source {
	if !c.tcp && c.ask(&c.askedPeer) {
		c.peer = unixPeerOf(c.fd)
	}
	return c.peer
}

// ask reports whether the kernel has to be asked: once for each address.
func (c *Client) ask(asked *bool) bool {
	if *asked || c.fd < 0 {
		return false
	}
	*asked = true
	return true
}

// Listening returns where the client came in; nil if NewClient has made it.
func (c *Client) Listening() *Listening { return c.listening }

// Loop returns the index of the loop that the client came in by.
func (c *Client) Loop() int {
	if c.worker == nil {
		return 0
	}
	return c.worker.index
}

// Waker returns the Waker that ends the client's parking.
func (c *Client) Waker() Waker {
	if c.worker == nil {
		return Waker{}
	}
	return Waker{client: c, use: c.use}
}

func unixPeerOf(fd int) source.Source {
	peer, err := sys.PeerCredentials(fd)
	if err != nil {
		return source.Source{}
	}
	return source.Unix(source.Credentials(peer))
}

// unmapped turns an IPv4-mapped address of an IPv6 socket into the IPv4 address.
func unmapped(at netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}

func (w *worker) newClient(in *accepted) *Client {
	c := w.pool.take()
	if c == nil {
		c = &Client{worker: w, progress: progress{endpoint: endpoint{fd: -1}}}
		c.cfg.Control, c.pending = c.control, c
	}
	c.listening, c.fd, c.tcp, c.peer, c.AdmissionToken = in.socket, in.fd, in.socket.TCP, source.TCP(in.peer), in.admissionToken
	return c
}

// begin begins to serve a client that has a place. reserved says that a spare descriptor is kept
// for it.
func (w *worker) begin(c *Client, in *accepted, reserved bool) {
	n, s := w.take(), w.servingOf(in.socket, in.service)
	w.counts.Accepted++
	w.counts.Active++
	s.clients++
	if !c.tcp {
		_ = s.service.Options.First(c.fd) // without these options the connection works too
	}
	n.state, n.ref = connecting, &c.listenerRef
	c.conn, c.serving, c.began, c.reserved, c.admitted = n, s, w.loop.Now(), reserved, s.service.Admitter != nil
	if w.beginRecord(c, in); c.Record != nil {
		c.Record.Begun = w.loop.Now()
	}
	if w.canceled != nil {
		w.refuse(c, w.canceled)
		return
	}
	var err error
	if c.id, err = w.loop.Add(c.fd, whichClient, n); err != nil {
		w.refuse(c, err)
		return
	}
	if err := in.socket.refusesLate(); err != nil {
		w.refuse(c, err)
		return
	}
	w.preread(c)
}

// stop ends everything under way for c on its loop, except for its registration.
func (w *worker) stop(c *Client) {
	c.stopLookup()
	w.unreserve(c)
	w.fdAvailable(c)
	w.loop.Disarm(&c.timer)
	w.endSearch(c)
	c.dropEndpoint()
	c.use++
	w.group.uncharge(&c.charged)
}

func (w *worker) freeClient(c *Client) {
	w.stop(c)
	c.reset()
	w.pool.give(c)
}

// keptTLVs is the capacity of a header's TLVs up to which the next client reuses their memory.
const keptTLVs = 512

func (c *Client) reset() {
	header := c.Header
	if header.Reset(); cap(header.TLVs) > keptTLVs {
		header.TLVs = nil
	}
	c.facts, c.progress = facts{Header: header, fd: -1}, progress{endpoint: endpoint{fd: -1}}
	c.serving = nil
}

// A stack keeps unused objects of a kind for the next clients.
type stack[T any] []T

// maxSpare is how many objects a stack keeps at most: a flood of clients must not hold memory afterwards.
const maxSpare = 1024

// take returns an object, or the zero value if there is none.
func (s *stack[T]) take() (v T) {
	if last := len(*s) - 1; last >= 0 {
		v, *s = (*s)[last], (*s)[:last]
	}
	return v
}

func (s *stack[T]) give(v T) {
	if len(*s) < maxSpare {
		*s = append(*s, v)
	}
}

// Ready is called for a client that is not joined yet. Its data can wait, except in preread, and so can its end of
// file, because it may still expect an answer. A client that has gone is not served.
func (n *conn) Ready(_ uint8, events loop.Events) {
	c := n.ref.pending
	if c == nil {
		return
	}
	c.events |= events
	c.noteEnd()
	switch {
	case c.hasGone(events):
		c.worker.clientLeft(c)
	case c.phase.prereads():
		if events&arrived != 0 || events == 0 {
			c.worker.peek(c)
		}
	case c.phase == responding || c.phase == lingering:
		c.worker.respondOn(c)
	}
}

// hasGone reports whether a client will neither send nor receive anything any more: it was
// reset, or has closed a unix socket and left no bytes. A TCP client that has closed
// looks like a client that has only ended its sending (tcp(7)).
func (c *Client) hasGone(events loop.Events) bool {
	if events&loop.Failed != 0 {
		return true
	}
	return events&loop.HungUp != 0 && c.leftNothing()
}

// leftNothing reports whether no bytes wait of a client that has ended its sending.
func (c *Client) leftNothing() bool {
	queued, err := sys.FIONREAD(c.fd)
	return err == nil && queued == 0 && len(c.buffered) == 0
}

// noteEnd notes what [Waker.HungUp] reports.
func (c *Client) noteEnd() {
	if c.events&loop.HungUp != 0 || c.events&loop.PeerClosed != 0 && c.leftNothing() {
		c.hung.Store(c.use + 1)
	}
}

// A phase is what a client that is not joined waits for.
type phase uint8

const (
	dialing       phase = iota // a connection to the endpoint, its address, or a descriptor for it
	awaitHeader                // of the PROXY protocol
	awaitHello                 // the ClientHello
	awaitData                  // the first byte
	awaitFirst                 // first bytes that decide the route
	awaitSilence               // the same, or a time without any
	looking                    // as many first bytes as its search wants
	awaitPostgres              // a message of PostgreSQL
	awaitAnswer                // the endpoint's answer to an SSLRequest of PostgreSQL
	pausing                    // the end of a pause
	parked                     // a wake-up
	writingHeader              // room for the rest of the PROXY header, at the endpoint
	responding                 // room for the rest of the response
	lingering                  // the client's end of file, after the response
)

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

func (p phase) prereads() bool { return awaitHeader <= p && p <= awaitPostgres }

// recognises reports whether the protocol of the first bytes is looked for.
func (p phase) recognises() bool { return p == awaitFirst || p == awaitSilence }

func (w *worker) arm(c *Client, d time.Duration) { w.loop.Arm(&c.timer, (*clientTimer)(c), d) }

type clientTimer Client

func (t *clientTimer) Expired(*loop.Timer) {
	c := (*Client)(t)
	w := c.worker
	switch c.phase {
	case awaitHeader:
		w.refuse(c, w.tooLate(c))
	case awaitHello, awaitData, awaitFirst, awaitPostgres, looking:
		w.prereadFailed(c, w.tooLate(c))
	case awaitSilence:
		w.silenceOver(c)
	case awaitAnswer:
		w.failedAnswer(c, os.ErrDeadlineExceeded)
	case dialing:
		w.askAbandon(c)
	case pausing, parked:
		w.proceed(c)
	case writingHeader:
		w.failed(c, os.ErrDeadlineExceeded)
	case responding, lingering:
		w.closeClient(c)
	}
}

// A Waker ends the parking of one client, see [Park]. It may be kept for any time: if the
// client is not parked any more, or is gone, it does nothing. It is comparable; the zero
// value wakes no client.
type Waker struct {
	client *Client
	use    uint64  // [Client].use, when the Waker was made
	f      *func() // see [WakerFunc]
}

// Wake makes the client's loop ask its [Search] for the next step soon. It may be called
// by any goroutine at any time, and does not wait.
func (w Waker) Wake() {
	switch {
	case w.f != nil:
		(*w.f)()
	case w.client != nil:
		w.client.worker.wakes.give(w)
	}
}

// HungUp reports whether the client has probably gone: it has closed its connection in both directions, which only unix
// sockets show, though it may have left bytes; or it has ended its sending and left no bytes, so it has asked for nothing,
// though it may wait for a server that speaks first. Any goroutine may call it.
func (w Waker) HungUp() bool { return w.client != nil && w.client.hung.Load() == w.use+1 }

// WakerFunc returns a Waker that calls f, which must not wait. It serves searches that run without a loop.
func WakerFunc(f func()) Waker { return Waker{f: &f} }

func (w *worker) wakeUp(due Waker) {
	if c := due.client; c.use == due.use && c.phase == parked {
		w.loop.Disarm(&c.timer)
		w.proceed(c)
	}
}
