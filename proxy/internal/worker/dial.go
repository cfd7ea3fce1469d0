package worker

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/loop"
)

// ErrSelfConnect is the error of a connection that had the same socket at both ends; it was
// closed. There is no listener: it is a syscall.ECONNREFUSED.
var ErrSelfConnect = fmt.Errorf("%w (self-connect: nothing listens on this port)", syscall.ECONNREFUSED)

// Values of which in events of the loop: the client's socket, or the endpoint's.
const (
	whichClient   = 0
	whichEndpoint = 1
)

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
	reserved     bool   // there is a spare for the endpoint's socket
	admitted     bool   // Released has to be called at its end
	undelayed    bool   // the endpoint's TCP_NODELAY is set
	raised       int32  // value of the client's low-water mark; 0 if it is not raised
	ahead        []byte // bytes that the client has sent, as far as a peek has shown; they are queued
	buffered     []byte // bytes taken out of its queue; nil: none
	futilePeeks  uint8  // peeks that have shown too little, see inVain
	moved        int    // how much of ahead, or of buffered, the endpoint has got already
	timer        loop.Timer
	endpoint     endpoint           // while its preface is written
	rest         []byte             // of the preface, or of a response
	use          uint64             // number of the use of this struct
	hung         atomic.Uint64      // one more than the use whose client has hung up
	cancelLookup context.CancelFunc // of the name that is resolved; nil: none is
	lookup       uint64             // number of it, over all uses
	began        int64              // clock when the client was taken on
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
func (c *worker) begin(accepted client, reserved bool) {
	n, s := c.take(accepted), c.servingOf(accepted)
	c.accepted++
	c.active++
	s.clients++
	n.state = connecting
	if !n.tcp {
		_ = s.service.Options.First(accepted.fd) // without it, it is a connection like any other
	}
	d := c.newPending(n, s, accepted.peer)
	d.reserved, d.admitted, d.client.AdmissionToken = reserved, s.service.Admitter != nil, accepted.ticket
	if c.canceled != nil {
		c.refuse(d, c.canceled)
		return
	}
	var err error
	if d.id, err = c.loop.Add(int(n.fd), whichClient, n); err != nil {
		c.refuse(d, err)
		return
	}
	c.preread(d)
}

func (c *worker) newPending(n *conn, s *serving, peer netip.AddrPort) *pendingClient {
	d := c.pendingPool.get()
	if d == nil {
		d = &pendingClient{worker: c}
		d.cfg.Control, d.listenerRef.dial, d.client.wakes = d.control, d, d
	}
	d.conn, n.role, d.next, d.events, d.began, d.phase = n, &d.listenerRef, nil, 0, c.loop.Now(), connection
	d.serving, d.endpoint.fd = s, -1
	d.client.use = d.use
	d.client.bind(s.socket, int(n.fd), peer)
	return d
}

// freePending ends the use of d.
func (c *worker) freePending(d *pendingClient) {
	d.stopLookup()
	c.unreserve(d)
	c.fdAvailable(d)
	c.loop.Disarm(&d.timer)
	c.endSearch(d)
	d.dropEndpoint()
	d.use++
	d.client.reset()
	d.conn, d.id, d.serving, d.step, d.rest, d.raised = nil, 0, nil, Step{}, nil, 0
	d.ahead, d.buffered, d.futilePeeks, d.moved = d.ahead[:0], nil, 0, 0
	c.pendingPool.put(d)
}

// A pendingPool is pending clients that are not used.
type pendingPool struct {
	first  *pendingClient
	number int
}

// get takes one out; nil if there is none.
func (p *pendingPool) get() *pendingClient {
	d := p.first
	if d != nil {
		p.first = d.next
		p.number--
	}
	return d
}

// put keeps one, unless there are enough.
func (p *pendingPool) put(d *pendingClient) {
	if p.number < maxSpare {
		p.number++
		d.next, p.first = p.first, d
	}
}

// maxSpare is how many objects of a kind that clients need until they are joined are kept for
// the next ones: those of a flood of clients are not kept for ever.
const maxSpare = 1024

// endSearch ends the search of d, if it has begun.
func (c *worker) endSearch(d *pendingClient) {
	if s := d.search; s != nil {
		d.search = nil
		d.serving.giveSearch(s)
	}
}

// Ready is called for a client that is not joined yet. Its data can wait, except in preread,
// and its end of file too, after which it may still want an answer; one that has gone is not
// served.
func (n *conn) Ready(_ uint8, events loop.Events) {
	d := n.role.dial
	if d == nil {
		return
	}
	d.events |= events
	if events&loop.HungUp != 0 {
		d.hung.Store(d.use + 1)
	}
	switch {
	case n.hasGone(events):
		n.worker.left(d)
	case d.phase == awaitHeader || d.phase == awaitHello || d.phase == awaitData:
		if events&arrived != 0 || events == 0 {
			n.worker.peek(d)
		}
	case d.phase == responding || d.phase == lingering:
		n.worker.respondOn(d)
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
	queued, err := sys.FIONREAD(int(n.fd))
	return err == nil && queued == 0
}

// search begins to look for an endpoint, anew if that is not the first time.
func (c *worker) search(d *pendingClient) {
	d.phase = connection
	if d.search == nil {
		d.search = d.serving.takeSearch()
	} else {
		d.search.Close()
	}
	d.search.Begin(&d.client, c.loop.Now())
	c.proceed(d)
}

// proceed performs the search's steps. d may not be in use any more when it returns.
func (c *worker) proceed(d *pendingClient) {
	d.phase = connection
	switch d.step = d.search.Next(c.loop.Now()); d.step.Action {
	case Connect:
		d.cfg.Timeout, d.cfg.Source, d.undelayed = d.step.Timeout, d.step.Source, false
		c.recheck(d)
		c.loop.Connect(&d.Dial, whichEndpoint, d.step.Address, &d.cfg, d)
	case Resolve:
		c.recheck(d)
		c.resolve(d)
	case Pause:
		d.phase = pausing
		c.loop.Arm(&d.timer, (*dialTimer)(d), d.step.Timeout)
	case Park:
		d.phase = parked
		if d.step.Timeout > 0 {
			c.loop.Arm(&d.timer, (*dialTimer)(d), d.step.Timeout)
		}
	case Respond:
		c.respond(d)
	case Handover:
		c.offload(d, d.step.To)
	default:
		c.refuse(d, d.search.Err())
	}
}

// control is called with the endpoint's socket, once it was made.
func (d *pendingClient) control(fd int, _ string) error {
	c := d.worker
	if f := c.group.control; f != nil {
		if err := f(); err != nil {
			return err
		}
	}
	c.unreserve(d)
	c.fdAvailable(d)
	return d.serving.service.Options.First(fd)
}

// Connected goes on with the endpoint's socket, or with the search's next step.
func (d *pendingClient) Connected(_ *loop.Dial, fd int, id loop.ID, events loop.Events, err error) {
	c := d.worker
	c.loop.Disarm(&d.timer)
	if err == nil {
		d.endpoint = endpoint{fd, id, events}
		if d.step.MaybeSelf && toItself(fd, d.step.Address) {
			err = ErrSelfConnect
		}
	}
	switch {
	case err == nil && (d.step.ProxyHeader || len(d.buffered) > 0):
		c.writeProxyHeader(d)
	case err == nil:
		c.join(d)
	case LacksDescriptor(err):
		c.waitForFD(d, err)
	default:
		c.failed(d, err)
	}
}

// failed goes on after a connection that has come to nothing.
func (c *worker) failed(d *pendingClient, err error) {
	d.dropEndpoint()
	d.search.Failed(err, c.loop.Now())
	c.proceed(d)
}

// dropEndpoint resets a connection that is not joined: its peer must not take that for
// an orderly end.
func (d *pendingClient) dropEndpoint() {
	if e := &d.endpoint; e.fd >= 0 {
		d.worker.loop.Drop(e.id)
		_ = sys.AbortOnClose(e.fd)
		closeSocket(e.fd)
		e.fd = -1
	}
}

// toItself reports whether a socket is its own peer.
func toItself(fd int, to loop.Address) bool {
	local, err := sys.LocalName(fd)
	if err != nil || local.AddrPort.Port() != to.AddrPort.Port() {
		return false
	}
	peer, err := sys.PeerName(fd) // which to is not, if it is unspecified
	return err == nil && peer == local
}

// resolve resolves a name on a goroutine of its own.
func (c *worker) resolve(d *pendingClient) {
	ctx, cancel := context.WithCancel(context.Background())
	d.cancelLookup = cancel
	d.lookup++
	step, use, lookup := d.step, d.use, d.lookup
	c.group.lookups.Go(func() {
		ips, err := step.Resolver.Resolve(ctx, step.Host, step.Timeout)
		c.post(func() {
			if d.use == use && d.lookup == lookup { // the client is there still, and waits for it
				c.resolved(d, ips, err)
			}
		})
	})
}

func (c *worker) resolved(d *pendingClient, ips []netip.Addr, err error) {
	c.loop.Disarm(&d.timer)
	d.stopLookup()
	d.search.Resolved(ips, err)
	c.proceed(d)
}

// stopLookup ends the resolving of a name, if one is under way.
func (d *pendingClient) stopLookup() {
	if d.cancelLookup != nil {
		d.cancelLookup()
		d.cancelLookup = nil
		d.lookup++
	}
}

// recheck has the search asked once in a while whether to go on with the step that begins.
func (c *worker) recheck(d *pendingClient) {
	if d.step.Recheck > 0 {
		c.loop.Arm(&d.timer, (*dialTimer)(d), d.step.Recheck)
	}
}

// askAbandon gives up the step that is under way, if the search says so.
func (c *worker) askAbandon(d *pendingClient) {
	switch {
	case !d.search.Abandon(c.loop.Now()):
		c.recheck(d)
	case d.step.Action == Resolve:
		c.resolved(d, nil, ErrAbandoned)
	default:
		d.Cancel()
		c.failed(d, ErrAbandoned)
	}
}

// dialTimer is the timeout of a dialing's phase.
type dialTimer pendingClient

func (t *dialTimer) Expired(*loop.Timer) {
	d := (*pendingClient)(t)
	c := d.worker
	switch d.phase {
	case awaitHeader:
		c.refuse(d, ErrHeaderTimeout)
	case awaitHello, awaitData:
		c.unmet(d, ErrPrereadTimeout)
	case connection:
		c.askAbandon(d)
	case pausing, parked:
		c.proceed(d)
	case prefacing:
		c.failedProxyHeader(d, os.ErrDeadlineExceeded)
	case responding, lingering:
		c.closeClient(d)
	}
}
