package admission

import (
	"crypto/tls"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// A Conn is a connection of a [Limiter], which it leaves on Close.
type Conn struct {
	net.Conn
	limiter *Limiter
	release func()
	secured bool        // the connection begins with a TLS handshake
	from    netip.Addr  // the client's network, if secured; not valid: unknown
	waits   atomic.Bool // it waits for bytes of its client; otherwise it looks at bytes that have come
	wrote   atomic.Bool // something was written to the client: in a handshake, after the whole ClientHello

	// Peer is what the server knows about the client. It is set before the connection is put.
	Peer any

	// Guarded by mu of the limiter:
	rank    Rank      // the greatest rank that the client may have; once it has asked, its rank
	since   time.Time // start of the wait for the client or, while busy, of the request
	moved   time.Time // when the client last took a part of the answer
	busy    bool      // from reading the request to writing the response
	asked   bool      // the request has come
	begun   bool      // the client has the right to this request
	gone    bool
	running bool   // the request is counted
	kind    Kind   // kind of the place that the request has
	queued  bool   // the request waits for a place
	end     func() // ends the request early
}

// Put passes a connection to Accept. rank is the greatest rank that its client may turn out to have; peer is for the
// server. With a TLS configuration the connection speaks TLS. release is called after the connection is closed.
func (l *Limiter) Put(conn net.Conn, with *tls.Config, rank Rank, peer any, release func()) {
	c := &Conn{Conn: conn, limiter: l, since: time.Now(), secured: with != nil, rank: rank, Peer: peer, release: sync.OnceFunc(release)}
	if c.secured {
		c.from = networkOf(conn)
	}
	l.mu.Lock()
	l.conns = append(l.conns, c)
	l.mu.Unlock()
	l.makeRoom()
	l.mu.Lock()
	gone := c.gone
	l.mu.Unlock()
	if gone {
		return
	}
	var accepted net.Conn = c
	if with != nil {
		accepted = tls.Server(c, with)
	}
	select {
	case l.accepted <- accepted:
	case <-l.closed:
		c.Close()
	}
}

// networkOf returns the network of a client: its address or, with IPv6, the first address of its /64, because a host may
// have all addresses there.
func networkOf(conn net.Conn) netip.Addr {
	at, ok := conn.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	addr := at.AddrPort().Addr().Unmap().WithZone("")
	if addr.Is6() {
		addr = netip.PrefixFrom(addr, 64).Masked().Addr()
	}
	return addr
}

// isSilent reports whether the client has sent no complete request, or with TLS no complete ClientHello, although all
// its bytes were looked at. A client is not silent while a busy machine has not begun its request, or while the rest
// of its handshake is on a long way. The caller holds the limiter's mu.
func (c *Conn) isSilent() bool {
	return !c.asked && c.waits.Load() && !(c.secured && c.wrote.Load()) && !readable(c.Conn)
}

// unclear reports whether the server is still looking at bytes that may be a complete request. The caller holds the
// limiter's mu.
func (c *Conn) unclear() bool { return !c.asked && !c.waits.Load() }

// readable reports whether a socket has bytes that are not read yet.
func readable(conn net.Conn) bool {
	queued := 0
	control(conn, func(fd int) { queued, _ = sys.FIONREAD(fd) })
	return queued > 0
}

// Left reports whether the client has closed its connection, so that nobody waits for the answer. A client that has only
// ended its half of a TCP connection looks the same. A nil Conn has not been left.
func (c *Conn) Left() bool {
	if c == nil {
		return false
	}
	left := int16(sys.POLLERR | sys.POLLHUP | sys.POLLRDHUP)
	if c.LocalAddr().Network() == "unix" {
		left &^= sys.POLLRDHUP // POLLHUP says that both halves are closed
	}
	var events int16
	control(c.Conn, func(fd int) { events, _ = sys.Poll(fd, left) })
	return events&left != 0
}

// control calls f with the descriptor of a socket, unless it is closed.
func control(conn net.Conn, f func(fd int)) {
	if c, ok := conn.(syscall.Conn); ok {
		if raw, err := c.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) { f(int(fd)) })
		}
	}
}

// Read implements [net.Conn].
func (c *Conn) Read(p []byte) (int, error) {
	c.waits.Store(true)
	n, err := c.Conn.Read(p)
	c.waits.Store(false)
	return n, err
}

// Write implements [net.Conn].
func (c *Conn) Write(p []byte) (int, error) {
	c.wrote.Store(true)
	return c.Conn.Write(p)
}

// Close closes the connection.
func (c *Conn) Close() error {
	defer c.release()
	c.limiter.mu.Lock()
	c.limiter.remove(c)
	c.limiter.mu.Unlock()
	return c.Conn.Close()
}

// begin starts a request; a call of end ends it early. begin returns false if the connection is already closed, so
// that no request runs without a client to receive the response.
func (c *Conn) begin(end func()) bool {
	c.limiter.mu.Lock()
	defer c.limiter.mu.Unlock()
	c.busy, c.asked, c.since, c.end = !c.gone, true, time.Now(), end
	return c.busy
}

// answer starts the wait for the client to read the response.
func (c *Conn) answer() {
	l := c.limiter
	l.mu.Lock()
	if !c.busy {
		l.mu.Unlock()
		return
	}
	c.busy, c.since, c.moved = false, time.Now(), time.Now()
	c.running = c.running && c.kind == Stream
	if i := slices.Index(l.conns, c); i >= 0 {
		l.conns = append(slices.Delete(l.conns, i, i+1), c)
	}
	l.mu.Unlock()
	_ = c.SetWriteDeadline(time.Now().Add(l.writeTime)) // ignored: the connection may be closed
	l.makeRoom()
}

// progress notes that the client has taken a part of the answer.
func (c *Conn) progress() {
	c.limiter.mu.Lock()
	defer c.limiter.mu.Unlock()
	c.moved = time.Now()
}

// Resume ends the wait for the client to read a part of a stream, until the next part is written. c may be nil.
func (c *Conn) Resume() {
	if c == nil {
		return
	}
	c.limiter.mu.Lock()
	defer c.limiter.mu.Unlock()
	c.busy = !c.gone
}
