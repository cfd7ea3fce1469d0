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
	endpoint     endpoint           // while its header is written
	rest         []byte             // of the header, or of a response
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
func (w *worker) begin(accepted client, reserved bool) {
	n, s := w.take(accepted), w.servingOf(accepted)
	w.accepted++
	w.active++
	s.clients++
	n.state = connecting
	if !n.tcp {
		_ = s.service.Options.First(accepted.fd) // without it, it is a connection like any other
	}
	d := w.newPending(n, s, accepted.peer)
	d.reserved, d.admitted, d.client.AdmissionToken = reserved, s.service.Admitter != nil, accepted.admissionToken
	if w.canceled != nil {
		w.refuse(d, w.canceled)
		return
	}
	var err error
	if d.id, err = w.loop.Add(int(n.fd), whichClient, n); err != nil {
		w.refuse(d, err)
		return
	}
	w.preread(d)
}

func (w *worker) newPending(n *conn, s *serving, peer netip.AddrPort) *pendingClient {
	d := w.pendingPool.get()
	if d == nil {
		d = &pendingClient{worker: w}
		d.cfg.Control, d.listenerRef.dial, d.client.wakes = d.control, d, d
	}
	d.conn, n.ref, d.next, d.events, d.began, d.phase = n, &d.listenerRef, nil, 0, w.loop.Now(), connection
	d.serving, d.endpoint.fd = s, -1
	d.client.use = d.use
	d.client.bind(s.socket, int(n.fd), peer)
	return d
}

// freePending ends the use of d.
func (w *worker) freePending(d *pendingClient) {
	d.stopLookup()
	w.unreserve(d)
	w.fdAvailable(d)
	w.loop.Disarm(&d.timer)
	w.endSearch(d)
	d.dropEndpoint()
	d.use++
	d.client.reset()
	d.conn, d.id, d.serving, d.step, d.rest, d.raised = nil, 0, nil, Step{}, nil, 0
	d.ahead, d.buffered, d.futilePeeks, d.moved = d.ahead[:0], nil, 0, 0
	w.pendingPool.put(d)
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
func (w *worker) endSearch(d *pendingClient) {
	if s := d.search; s != nil {
		d.search = nil
		d.serving.giveSearch(s)
	}
}

// Ready is called for a client that is not joined yet. Its data can wait, except in preread,
// and its end of file too, after which it may still want an answer; one that has gone is not
// served.
func (n *conn) Ready(_ uint8, events loop.Events) {
	d := n.ref.dial
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
func (w *worker) search(d *pendingClient) {
	d.phase = connection
	if d.search == nil {
		d.search = d.serving.takeSearch()
	} else {
		d.search.Close()
	}
	d.search.Begin(&d.client, w.loop.Now())
	w.proceed(d)
}

// proceed performs the search's steps. d may not be in use any more when it returns.
func (w *worker) proceed(d *pendingClient) {
	d.phase = connection
	switch d.step = d.search.Next(w.loop.Now()); d.step.Action {
	case Connect:
		d.cfg.Timeout, d.cfg.Source, d.undelayed = d.step.Timeout, d.step.Source, false
		w.recheck(d)
		w.loop.Connect(&d.Dial, whichEndpoint, d.step.Address, &d.cfg, d)
	case Resolve:
		w.recheck(d)
		w.resolve(d)
	case Pause:
		d.phase = pausing
		w.loop.Arm(&d.timer, (*dialTimer)(d), d.step.Timeout)
	case Park:
		d.phase = parked
		if d.step.Timeout > 0 {
			w.loop.Arm(&d.timer, (*dialTimer)(d), d.step.Timeout)
		}
	case Respond:
		w.respond(d)
	case Handover:
		w.offload(d, d.step.To)
	default:
		w.refuse(d, d.search.Err())
	}
}

// control is called with the endpoint's socket, once it was made.
func (d *pendingClient) control(fd int, _ string) error {
	w := d.worker
	if f := w.group.control; f != nil {
		if err := f(); err != nil {
			return err
		}
	}
	w.unreserve(d)
	w.fdAvailable(d)
	return d.serving.service.Options.First(fd)
}

// Connected goes on with the endpoint's socket, or with the search's next step.
func (d *pendingClient) Connected(_ *loop.Dial, fd int, id loop.ID, events loop.Events, err error) {
	w := d.worker
	w.loop.Disarm(&d.timer)
	if err == nil {
		d.endpoint = endpoint{fd, id, events}
		if d.step.MaybeSelf && toItself(fd, d.step.Address) {
			err = ErrSelfConnect
		}
	}
	switch {
	case err == nil && (d.step.ProxyHeader || len(d.buffered) > 0):
		w.writeProxyHeader(d)
	case err == nil:
		w.join(d)
	case LacksDescriptor(err):
		w.waitForFD(d, err)
	default:
		w.failed(d, err)
	}
}

// failed goes on after a connection that has come to nothing.
func (w *worker) failed(d *pendingClient, err error) {
	d.dropEndpoint()
	d.search.Failed(err, w.loop.Now())
	w.proceed(d)
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
func (w *worker) resolve(d *pendingClient) {
	ctx, cancel := context.WithCancel(context.Background())
	d.cancelLookup = cancel
	d.lookup++
	step, use, lookup := d.step, d.use, d.lookup
	w.group.lookups.Go(func() {
		ips, err := step.Resolver.Resolve(ctx, step.Host, step.Timeout)
		w.post(func() {
			if d.use == use && d.lookup == lookup { // the client is there still, and waits for it
				w.resolved(d, ips, err)
			}
		})
	})
}

func (w *worker) resolved(d *pendingClient, ips []netip.Addr, err error) {
	w.loop.Disarm(&d.timer)
	d.stopLookup()
	d.search.Resolved(ips, err)
	w.proceed(d)
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
func (w *worker) recheck(d *pendingClient) {
	if d.step.Recheck > 0 {
		w.loop.Arm(&d.timer, (*dialTimer)(d), d.step.Recheck)
	}
}

// askAbandon gives up the step that is under way, if the search says so.
func (w *worker) askAbandon(d *pendingClient) {
	switch {
	case !d.search.Abandon(w.loop.Now()):
		w.recheck(d)
	case d.step.Action == Resolve:
		w.resolved(d, nil, ErrAbandoned)
	default:
		d.Cancel()
		w.failed(d, ErrAbandoned)
	}
}

// dialTimer is the timeout of a dialing's phase.
type dialTimer pendingClient

func (t *dialTimer) Expired(*loop.Timer) {
	d := (*pendingClient)(t)
	w := d.worker
	switch d.phase {
	case awaitHeader:
		w.refuse(d, ErrHeaderTimeout)
	case awaitHello, awaitData:
		w.prereadFailed(d, ErrPrereadTimeout)
	case connection:
		w.askAbandon(d)
	case pausing, parked:
		w.proceed(d)
	case writingHeader:
		w.failedProxyHeader(d, os.ErrDeadlineExceeded)
	case responding, lingering:
		w.closeClient(d)
	}
}
