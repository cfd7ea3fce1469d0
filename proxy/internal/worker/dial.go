package worker

import (
	"context"
	"net/netip"
	"os"
	"sync/atomic"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/proxy/internal/record"
	"github.com/penstock/penstock/proxy/sockopt"
)

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

// endSearch ends the search of c, if it has begun.
func (w *worker) endSearch(c *pendingClient) {
	if s := c.search; s != nil {
		c.search = nil
		c.serving.giveSearch(s)
	}
}

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

// search begins to look for an endpoint, anew if that is not the first time.
func (w *worker) search(c *pendingClient) {
	c.phase = dialing
	if c.search == nil {
		c.search = c.serving.takeSearch()
	} else {
		c.search.Close()
	}
	c.search.Begin(&c.client, w.loop.Now())
	if c.record != nil {
		c.record.Routed = w.loop.Now()
	}
	w.proceed(c)
}

// proceed performs the search's steps. c may not be in use any more when it returns.
func (w *worker) proceed(c *pendingClient) {
	c.phase = dialing
	c.record.Resume(w.loop.Now())
	switch c.step = c.search.Next(w.loop.Now()); c.step.Action {
	case Connect:
		c.record.Connect(c.step.Address.AddrPort, c.step.Address.Path, w.loop.Now())
		c.cfg.Timeout, c.cfg.Source, c.undelayed = c.step.Timeout, c.step.Source, false
		w.recheck(c)
		w.loop.Connect(&c.Dial, whichEndpoint, c.step.Address, &c.cfg, c)
	case Resolve:
		w.recheck(c)
		w.resolve(c)
	case Pause:
		c.phase = pausing
		c.record.Pause(w.loop.Now())
		w.loop.Arm(&c.timer, (*clientTimer)(c), c.step.Timeout)
	case Park:
		c.phase = parked
		if !c.step.Unqueued {
			c.record.Wait(w.loop.Now())
		}
		if c.step.Timeout > 0 {
			w.loop.Arm(&c.timer, (*clientTimer)(c), c.step.Timeout)
		}
	case Respond:
		w.respond(c)
	case Look:
		w.look(c)
	case Handover:
		w.offload(c, c.step.To)
	default:
		w.refuse(c, c.search.Err())
	}
}

// control is called with the endpoint's socket, once it was made.
func (c *pendingClient) control(fd int, _ string) error {
	w := c.worker
	if f := w.group.control; f != nil {
		if err := f(); err != nil {
			return err
		}
	}
	w.unreserve(c)
	w.fdAvailable(c)
	c.step.Congestion.Set(fd)
	return c.serving.service.Options.First(fd)
}

// Connected goes on with the endpoint's socket, or with the search's next step.
func (c *pendingClient) Connected(_ *loop.Dial, fd int, id loop.ID, events loop.Events, err error) {
	w := c.worker
	w.loop.Disarm(&c.timer)
	if err == nil {
		c.endpoint = endpoint{fd, id, events}
		if c.step.MaybeSelf && toItself(fd, c.step.Address) {
			err = sockopt.ErrSelfConnect
		}
	}
	switch {
	case err == nil && c.client.asksEndpoint():
		w.askTLS(c)
	case err == nil && (c.step.ProxyHeader || c.writesFirst()):
		w.writeProxyHeader(c)
	case err == nil:
		w.join(c)
	case LacksDescriptor(err):
		w.waitForFD(c, err)
	default:
		w.failed(c, err)
	}
}

// writesFirst reports whether the client's first bytes go before the session: those that were taken, and a hello that is known, so that its gate
// is asked only if there is more.
func (c *pendingClient) writesFirst() bool {
	return (len(c.buffered) > 0 || c.hello.size > 0 && len(c.ahead) > 0) && !rewritesClient(c.search)
}

// failed goes on after a connection that has come to nothing, but not at once: connects may fail within
// their calls, and as many in a row as there are endpoints. The loop is told of a client that leaves between two
// of them, and serves others.
func (w *worker) failed(c *pendingClient, err error) {
	c.dropEndpoint()
	c.search.Failed(err, w.loop.Now())
	c.phase = parked
	c.wake(c.use)
}

// dropEndpoint resets a connection that is not joined: its peer must not take that for
// an orderly end.
func (c *pendingClient) dropEndpoint() {
	if e := &c.endpoint; e.fd >= 0 {
		c.worker.loop.Drop(e.id)
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
func (w *worker) resolve(c *pendingClient) {
	ctx, cancel := context.WithCancel(context.Background())
	c.cancelLookup = cancel
	c.lookup++
	step, use, lookup := c.step, c.use, c.lookup
	w.group.lookups.Go(func() {
		ips, err := step.Resolver.Resolve(ctx, step.Host, step.Timeout)
		w.post(func() {
			if c.use == use && c.lookup == lookup { // the client is there still, and waits for it
				w.resolved(c, ips, err)
			}
		})
	})
}

func (w *worker) resolved(c *pendingClient, ips []netip.Addr, err error) {
	w.loop.Disarm(&c.timer)
	c.stopLookup()
	c.search.Resolved(ips, err)
	w.proceed(c)
}

// stopLookup ends the resolving of a name, if one is under way.
func (c *pendingClient) stopLookup() {
	if c.cancelLookup != nil {
		c.cancelLookup()
		c.cancelLookup = nil
		c.lookup++
	}
}

// recheck has the search asked once in a while whether to go on with the step that begins.
func (w *worker) recheck(c *pendingClient) {
	if c.step.Recheck > 0 {
		w.loop.Arm(&c.timer, (*clientTimer)(c), c.step.Recheck)
	}
}

// askAbandon gives up the step that is under way, if the search says so.
func (w *worker) askAbandon(c *pendingClient) {
	switch {
	case !c.search.Abandon(w.loop.Now()):
		w.recheck(c)
	case c.step.Action == Resolve:
		w.resolved(c, nil, ErrAbandoned)
	default:
		c.Cancel()
		w.failed(c, ErrAbandoned)
	}
}

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
