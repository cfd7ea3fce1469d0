package worker

import (
	"syscall"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/relay"
)

// headerTimeout is how long an endpoint may have no room for its header.
const headerTimeout = 5 * time.Second

// writeProxyHeader writes the header before the client's bytes, and then joins. A new
// connection has room for it as a rule. If the client's bytes are known already they go with
// it. If it is only known that there are some, they are moved next, and the kernel is asked to
// let both go together; if not, Nagle's algorithm would hold back the following bytes, so
// TCP_NODELAY is set.
func (w *worker) writeProxyHeader(c *pendingClient) {
	w.header = w.header[:0]
	if c.step.ProxyHeader {
		w.header = c.search.ProxyHeader(w.header)
	}
	size, flags := len(w.header), 0
	rewritten := rewritesClient(c.search)
	switch {
	case rewritten && c.queued():
		flags = sys.MSG_MORE
	case rewritten:
		c.setNoDelay()
	case len(c.buffered) > 0:
		w.header = append(w.header, c.first()...)
	case len(c.ahead) > 0 && w.group.cfg.Relay.Engine() != relay.EngineSplice:
		w.header = append(w.header, c.ahead...)
	case c.queued():
		flags = sys.MSG_MORE
	default:
		c.setNoDelay()
	}
	n, err := sendSome(c.endpoint.fd, w.header, flags)
	if len(c.buffered) > 0 && !rewritten {
		size, c.moved = len(w.header), len(c.first())
	} else {
		c.moved = max(n-size, 0)
	}
	switch {
	case n > size || err == nil && n == size:
		w.join(c) // if there was an error, too: the session meets it again
	case err != nil:
		c.phase, c.rest = writingHeader, w.header[n:]
		w.failedProxyHeader(c, err)
	default:
		c.setNoDelay()
		c.phase, c.rest = writingHeader, c.kept(w.header[n:size])
		w.loop.Arm(&c.timer, (*clientTimer)(c), headerTimeout)
		w.loop.Hand(c.endpoint.id, (*headerWrite)(c))
	}
}

// kept returns b, the end of a header, in memory of the client's: those of its bytes that were taken are there already.
func (c *pendingClient) kept(b []byte) []byte {
	first := c.first()
	if at := len(first) - len(b); at >= 0 && !rewritesClient(c.search) {
		return first[at:]
	}
	return append([]byte(nil), b...)
}

// failedProxyHeader goes on after an endpoint that has not taken all of the header. One that
// has got some of the bytes taken from the client is the last.
func (w *worker) failedProxyHeader(c *pendingClient, err error) {
	if c.sentOn() {
		w.refuse(c, err)
		return
	}
	c.moved, c.rest = 0, nil
	w.failed(c, err)
}

// setNoDelay switches Nagle's algorithm off.
func (c *pendingClient) setNoDelay() {
	if c.step.Address.Path == "" {
		c.undelayed = sys.SetsockoptInt(c.endpoint.fd, sys.IPPROTO_TCP, sys.TCP_NODELAY, 1) == nil
	}
}

// queued reports whether bytes of the client are queued. The event of epoll may have been a
// PROXY header that was consumed; an end of file is not reported by it alone.
func (c *pendingClient) queued() bool {
	p := &c.serving.service.Preread
	const all = loop.Readable | loop.PeerClosed | loop.HungUp
	return p.Hello || p.Data || c.client.First.Seen() > 0 || p.Header == nil && c.events&all == loop.Readable
}

// A headerWrite is a pending client whose endpoint has not taken the whole PROXY header yet.
type headerWrite pendingClient

// Ready is called for the endpoint.
func (p *headerWrite) Ready(_ uint8, events loop.Events) {
	c := (*pendingClient)(p)
	w := c.worker
	c.endpoint.events |= events
	n, err := sendSome(c.endpoint.fd, c.rest, 0)
	if err != nil {
		w.loop.Disarm(&c.timer)
		w.failedProxyHeader(c, err)
		return
	}
	if c.rest = c.rest[n:]; len(c.rest) == 0 {
		w.loop.Disarm(&c.timer)
		w.join(c)
	}
}

// sendSome sends as much as there is room for. By a vecio.Writer, which has to be opened for each socket, these
// single sends take 1.5 times the CPU (BenchmarkCompose).
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
