package worker

import (
	"bytes"
	"context"
	"net/netip"
	"syscall"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/proxy/internal/record"
)

// The sockets of a client, as events of the loop name them.
const (
	whichClient   = 0
	whichEndpoint = 1
)

func (w *worker) endSearch(c *Client) {
	if s := c.search; s != nil {
		c.search = nil
		s.Close()
		c.serving.searches.give(s)
	}
}

// search begins to look for an endpoint, again if this is not the first time.
func (w *worker) search(c *Client) {
	c.phase = dialing
	if c.search != nil {
		c.search.Close()
	} else if c.search = c.serving.searches.take(); c.search == nil {
		c.search = c.serving.service.NewSearch()
	}
	c.search.Begin(c, w.loop.Now())
	if c.Record != nil {
		c.Record.Routed = w.loop.Now()
	}
	w.proceed(c)
}

// proceed performs the search's steps. When it returns, c may no longer be in use.
func (w *worker) proceed(c *Client) {
	c.phase = dialing
	c.Record.Resume(w.loop.Now())
	c.step = c.search.Next(w.loop.Now())
	if c.step.Action != Connect && c.step.Action != Resolve {
		w.fdAvailable(c) // it needs none before its next step
	}
	switch c.step.Action {
	case Connect:
		c.Record.Connect(c.step.Address.AddrPort, c.step.Address.Path, w.loop.Now())
		c.cfg.Timeout, c.cfg.Source, c.undelayed = c.step.Timeout, c.step.Source, false
		w.recheck(c)
		if c.reserved && w.near {
			w.claim()
		}
		w.loop.Connect(&c.dial, whichEndpoint, c.step.Address, &c.cfg, (*dialed)(c))
	case Resolve:
		w.recheck(c)
		w.resolve(c)
	case Pause:
		c.phase = pausing
		c.Record.Pause(w.loop.Now())
		w.arm(c, c.step.Timeout)
	case Park:
		c.phase = parked
		c.noteEnd() // its PROXY header, which has been read meanwhile, may have come together with its end
		if !c.step.Unqueued {
			c.Record.Wait(w.loop.Now())
		}
		if c.step.Timeout > 0 {
			w.arm(c, c.step.Timeout)
		}
	case Respond:
		w.respond(c)
	case Look:
		w.look(c)
	case Handover:
		to, h := c.step.To, w.takeOff(c)
		w.claim() // the goroutine needs two descriptors, and gives one back
		go to(h)
	default:
		w.refuse(c, c.search.Err())
	}
}

func (c *Client) control(fd int, _ string) error {
	w := c.worker
	if err := w.group.control(); err != nil {
		return err
	}
	if err := c.search.Circle(fd, false); err != nil {
		return err
	}
	w.beyond(fd)
	w.unreserve(c)
	w.fdAvailable(c)
	c.step.Congestion.Set(fd)
	return c.serving.service.Options.First(fd)
}

type dialed Client

// Connected goes on with the endpoint's socket, or with the search's next step.
func (d *dialed) Connected(_ *loop.Dial, fd int, id loop.ID, events loop.Events, err error) {
	c := (*Client)(d)
	w := c.worker
	w.loop.Disarm(&c.timer)
	if err == nil {
		c.endpoint = endpoint{fd, id, events}
		if c.step.Address.Path != "" {
			err = c.search.Circle(fd, true)
		}
	}
	switch {
	case err == nil && c.search.Overruled():
		c.dropEndpoint()
		w.proceed(c)
	case err == nil && c.Postgres.Asked && c.Postgres.passThrough:
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

// writesFirst reports whether client bytes are sent before the session begins.
func (c *Client) writesFirst() bool { return len(c.buffered) > 0 && !rewritesClient(c.search) }

// failed continues after a failed connection, but not at once: connects may fail immediately, for
// all endpoints in a row. Between two of them the loop can notice that the client leaves, and
// serve others.
func (w *worker) failed(c *Client, err error) {
	c.dropEndpoint()
	c.search.Failed(err, w.loop.Now())
	c.phase = parked
	c.Waker().Wake()
}

// dropEndpoint resets a connection that is not joined: the endpoint must not take its end for an orderly one.
func (c *Client) dropEndpoint() {
	if e := &c.endpoint; e.fd >= 0 {
		c.worker.loop.Drop(e.id)
		resetSocket(e.fd)
		e.fd = -1
	}
}

// resolve resolves a name for a client. The client may have left when the answer comes.
func (w *worker) resolve(c *Client) {
	c.lookup++
	use, lookup := c.use, c.lookup
	c.cancelLookup = w.lookUp(c.step.Resolver, c.step.Host, c.step.Timeout, func(ips []netip.Addr, err error) {
		if c.use == use && c.lookup == lookup {
			w.resolved(c, ips, err)
		}
	})
}

// lookUp resolves a name on a goroutine of its own, and calls found on the loop.
func (w *worker) lookUp(by Resolver, host string, timeout time.Duration, found func([]netip.Addr, error)) context.CancelFunc {
	ctx, cancel := context.WithCancel(context.Background())
	w.group.lookups.Go(func() {
		ips, err := by(ctx, host, timeout)
		w.post(func() { found(ips, err) })
	})
	return cancel
}

func (w *worker) resolved(c *Client, ips []netip.Addr, err error) {
	w.loop.Disarm(&c.timer)
	c.stopLookup()
	c.search.Resolved(ips, err)
	w.proceed(c)
}

func (c *Client) stopLookup() {
	if c.cancelLookup != nil {
		c.cancelLookup()
		c.cancelLookup = nil
		c.lookup++
	}
}

func (w *worker) recheck(c *Client) {
	if c.step.Recheck > 0 {
		w.arm(c, c.step.Recheck)
	}
}

// askAbandon gives up the step that is under way, if the search says so.
func (w *worker) askAbandon(c *Client) {
	switch {
	case !c.search.Abandon(w.loop.Now()):
		w.recheck(c)
	case c.step.Action == Resolve:
		w.resolved(c, nil, record.ErrAbandoned)
	default:
		c.dial.Cancel()
		w.failed(c, record.ErrAbandoned)
	}
}

// headerTimeout is how long an endpoint may leave no room for its header.
const headerTimeout = 5 * time.Second

// writeProxyHeader writes the header before the client's bytes, and then joins. A new connection
// usually has room for it. Client bytes that were read already are sent with it. If bytes of the
// client are only known to exist, they are moved next, and the kernel is asked to send both
// together. Without client bytes TCP_NODELAY is set, because Nagle's algorithm would hold back the
// bytes that follow.
func (w *worker) writeProxyHeader(c *Client) {
	w.header = w.header[:0]
	if c.step.ProxyHeader {
		w.header = c.search.ProxyHeader(w.header)
	}
	size, flags := len(w.header), 0
	switch {
	case c.writesFirst():
		w.header = append(w.header, c.hello.upTo(c.buffered)...)
	case c.queued():
		flags = sys.MSG_MORE
	default:
		c.setNoDelay()
	}
	n, err := sendSome(c.endpoint.fd, w.header, flags)
	c.moved = max(n-size, 0)
	switch {
	case n > size || err == nil && n == size:
		w.join(c) // also after an error, which the session will meet again
	case err != nil:
		w.failed(c, err)
	default:
		c.setNoDelay()
		c.phase, c.rest = writingHeader, bytes.Clone(w.header[n:size])
		w.arm(c, headerTimeout)
		w.loop.Hand(c.endpoint.id, (*headerWrite)(c))
	}
}

func (c *Client) setNoDelay() {
	if c.step.Address.Path == "" {
		c.undelayed = sys.SetsockoptInt(c.endpoint.fd, sys.IPPROTO_TCP, sys.TCP_NODELAY, 1) == nil
	}
}

// queued reports whether client bytes are queued. The epoll event may have reported a PROXY header that is consumed by
// now. An end of file alone does not count.
func (c *Client) queued() bool {
	p := &c.serving.service.Preread
	const all = loop.Readable | loop.PeerClosed | loop.HungUp
	return p.Hello || p.Data || c.First.Seen() > 0 || p.Header == nil && c.events&all == loop.Readable
}

// A headerWrite is a pending client whose endpoint has not taken the whole PROXY header yet.
type headerWrite Client

func (p *headerWrite) Ready(_ uint8, events loop.Events) {
	c := (*Client)(p)
	w := c.worker
	c.endpoint.events |= events
	n, err := sendSome(c.endpoint.fd, c.rest, 0)
	if err != nil {
		w.loop.Disarm(&c.timer)
		w.failed(c, err)
		return
	}
	if c.rest = c.rest[n:]; len(c.rest) == 0 {
		w.loop.Disarm(&c.timer)
		w.join(c)
	}
}

// sendSome sends as many bytes as there is room for. A vecio.Writer would have to be opened for each socket, and take 1.5
// times the CPU for such single sends.
func sendSome(fd int, b []byte, flags int) (sent int, err error) {
	for sent < len(b) {
		n, err := sys.Send(fd, b[sent:], flags|sys.MSG_DONTWAIT|sys.MSG_NOSIGNAL)
		sent += n
		switch err {
		case nil, syscall.EINTR:
		case syscall.EAGAIN:
			return sent, nil
		default:
			return sent, err
		}
	}
	return sent, nil
}
