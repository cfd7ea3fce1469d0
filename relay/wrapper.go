package relay

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"reflect"
	"slices"
	"sync/atomic"
	"syscall"
	"time"
)

// An Unwrapper is a wrapper of a connection or file that lets relay move bytes beneath it, so that wrapping
// does not cost the zero-copy path. A wrapper that changes the bytes must not implement it.
//
// Counting and idle timeouts are no reason to see every byte: [Metered] counts, and [Config] has the timeouts.
type Unwrapper interface {
	// RelayReader is called before the first byte is read, once for a session and once for each copy. It
	// returns the reader to use in the wrapper's place, and the bytes that the wrapper has read from it but not
	// handed out: all of them, but at most max. These bytes are then handed out: the wrapper must not return
	// them again. It keeps the bytes beyond max. Only a copy with a limit ([Relay.CopyN], io.LimitedReader)
	// passes a max below math.MaxInt; relay reads no byte beyond it.
	//
	// RelayReader may wait, for instance for the rest of a header. It stops when ctx ends: with the session, or
	// with the context of a copy. Its time counts for the session's timeouts. Meanwhile the bytes of the other
	// direction move on, and RelayWriter may be called. An error counts as the error of a Read after the
	// buffered bytes: io.EOF ends the stream, any other error fails the session or copy.
	//
	// relay delivers the bytes first, and may read the slice until the session or copy has ended. A nil reader
	// keeps the wrapper's own Read.
	RelayReader(ctx context.Context, max int) (beneath io.Reader, buffered []byte, err error)
	// RelayWriter is called before the first byte is written. It flushes the wrapper's own bytes, and returns
	// the writer to use in the wrapper's place. A nil writer keeps the wrapper's own Write. The end of file is
	// passed on by the CloseWrite of the returned writer, not by the wrapper's.
	RelayWriter() (beneath io.Writer)
}

// maxUnwraps bounds how deep wrappers are followed, in case they form a circle.
const maxUnwraps = 16

// ErrReadAhead is returned by a copy if an [Unwrapper] has handed out more bytes than it was asked for. Nothing
// was moved, and these bytes are lost.
var ErrReadAhead = errors.New("penstock: relay: RelayReader returned more bytes than requested")

// An unwrapped is the reader or writer that takes the place of wrappers.
type unwrapped struct {
	r      io.Reader
	w      io.Writer
	ahead  []byte   // read before by the wrappers, in stream order
	meters []*Meter // among the wrappers
	stream bool     // one of the wrappers is a [Stream]
	err    error    // returned by the first read after ahead
}

// unwrapReader returns the reader that takes r's place, with at most max bytes ahead. Its only error is
// [ErrReadAhead]: the wrappers' errors are in the result.
func unwrapReader(ctx context.Context, r io.Reader, max int) (u unwrapped, err error) {
	u.r = r
	for range maxUnwraps {
		w, ok := u.r.(Unwrapper)
		if !ok {
			break
		}
		inner, buffered, err := w.RelayReader(ctx, max)
		if len(buffered) > max {
			return u, ErrReadAhead
		}
		noteRead(u.meters, len(buffered)) // meters outside of this wrapper
		u.through(w)
		if max -= len(buffered); u.ahead == nil {
			u.ahead = buffered
		} else {
			u.ahead = append(slices.Clip(u.ahead), buffered...)
		}
		if u.err = err; err != nil || isNil(inner) || same(inner, u.r) {
			break
		}
		if u.r = inner; max == 0 {
			break
		}
	}
	return u, nil
}

// unwrapWriter returns the writer that takes w's place.
func unwrapWriter(w io.Writer) (u unwrapped) {
	u.w = w
	for range maxUnwraps {
		w, ok := u.w.(Unwrapper)
		if !ok {
			break
		}
		inner := w.RelayWriter()
		if isNil(inner) || same(inner, u.w) {
			break
		}
		u.through(w)
		u.w = inner
	}
	return u
}

// through notes a meter or a Stream of this package.
func (u *unwrapped) through(w Unwrapper) {
	switch w := w.(type) {
	case *metered:
		u.meters = append(u.meters, w.meter)
	case *stream, *streamConn:
		u.stream = true
	}
}

// same reports whether a wrapper returned itself. Values that cannot be compared are not the same.
func same(a, b any) bool {
	return reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}

// isPlain reports whether c has a type that relay knows to be nothing but its descriptor. Interfaces do not
// show that: a struct that embeds a *net.TCPConn has all its methods, SyscallConn included, and may still want
// to see every byte.
func isPlain(c any) bool {
	switch c := c.(type) {
	case *net.TCPConn:
		return c != nil
	case *os.File:
		return c != nil
	case *net.UnixConn:
		if c == nil {
			return false
		}
		addr := c.LocalAddr()
		return addr != nil && addr.Network() == "unix"
	}
	return false
}

func isFile(c any) bool {
	_, is := c.(*os.File)
	return is
}

// A closeWriter passes on a half-close: *net.TCPConn, *net.UnixConn, *tls.Conn.
type closeWriter interface{ CloseWrite() error }

// Prefixed returns conn with a head of bytes that were read from it already. Every reader of the result gets
// them first. The result owns head and conn; all other methods are conn's. It is an [Unwrapper]: a relay moves
// what follows the head beneath it. As with a [bufio.Reader], the head can still be read after a deadline or Close.
//
// Like the methods of conn, its methods may be called by several goroutines, but Read only by one at a time.
func Prefixed(conn net.Conn, head []byte) net.Conn {
	if isNil(conn) {
		return nil
	}
	return &prefixed{beneath{conn}, head}
}

type prefixed struct {
	beneath
	head []byte
}

func (c *prefixed) Read(p []byte) (int, error) {
	if len(c.head) == 0 {
		return c.Conn.Read(p)
	}
	n := copy(p, c.head)
	c.take(n)
	return n, nil
}

// take removes n bytes from the head, and drops an empty head.
func (c *prefixed) take(n int) (taken []byte) {
	taken = c.head[:n:n]
	if c.head = c.head[n:]; len(c.head) == 0 {
		c.head = nil
	}
	return taken
}

// RelayReader implements [Unwrapper].
func (c *prefixed) RelayReader(_ context.Context, max int) (io.Reader, []byte, error) {
	return c.Conn, c.take(min(max, len(c.head))), nil
}

// Buffered returns conn as read through r, which must read from conn itself: bytes that r has buffered come first. It is
// an [Unwrapper]: a session takes these bytes from r, and reads the following ones directly from conn. Do not use r
// afterwards. The result owns conn; all other methods are conn's.
//
// Like the methods of conn, its methods may be called by several goroutines, but Read only by one at a time.
func Buffered(conn net.Conn, r *bufio.Reader) net.Conn {
	if isNil(conn) {
		return nil
	}
	return &buffered{beneath{conn}, r}
}

type buffered struct {
	beneath
	r *bufio.Reader // nil: a session has taken its bytes
}

func (c *buffered) Read(p []byte) (int, error) {
	if c.r == nil {
		return c.Conn.Read(p)
	}
	return c.r.Read(p)
}

// RelayReader implements [Unwrapper].
func (c *buffered) RelayReader(_ context.Context, max int) (io.Reader, []byte, error) {
	if c.r == nil {
		return c.Conn, nil, nil
	}
	n := min(max, c.r.Buffered())
	head, _ := c.r.Peek(n) // does not fail: the bytes are there
	_, _ = c.r.Discard(n)  // they stay where they are until r reads again
	if c.r.Buffered() == 0 && max > n {
		c.r = nil
	}
	return c.Conn, head, nil
}

// beneath is a connection with the methods that a relay and others look for in addition to [net.Conn]'s.
type beneath struct{ net.Conn }

// NetConn returns the connection itself, as [tls.Conn.NetConn] does.
func (c beneath) NetConn() net.Conn { return c.Conn }

// RelayWriter implements [Unwrapper].
func (c beneath) RelayWriter() io.Writer { return c.Conn }

// CloseWrite passes on an end of file, or returns errors.ErrUnsupported if the connection cannot.
func (c beneath) CloseWrite() error {
	if half, ok := c.Conn.(closeWriter); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// CloseRead is the CloseRead of the connection, if it has one.
func (c beneath) CloseRead() error {
	if half, ok := c.Conn.(interface{ CloseRead() error }); ok {
		return half.CloseRead()
	}
	return errors.ErrUnsupported
}

// SetLinger is [net.TCPConn.SetLinger]. Like the following methods it returns errors.ErrUnsupported if the
// connection has no such method.
func (c beneath) SetLinger(seconds int) error {
	if tcp, ok := c.Conn.(interface{ SetLinger(int) error }); ok {
		return tcp.SetLinger(seconds)
	}
	return errors.ErrUnsupported
}

// SetNoDelay is [net.TCPConn.SetNoDelay].
func (c beneath) SetNoDelay(noDelay bool) error {
	if tcp, ok := c.Conn.(interface{ SetNoDelay(bool) error }); ok {
		return tcp.SetNoDelay(noDelay)
	}
	return errors.ErrUnsupported
}

// SetKeepAlive is [net.TCPConn.SetKeepAlive].
func (c beneath) SetKeepAlive(keepalive bool) error {
	if tcp, ok := c.Conn.(interface{ SetKeepAlive(bool) error }); ok {
		return tcp.SetKeepAlive(keepalive)
	}
	return errors.ErrUnsupported
}

// SetKeepAlivePeriod is [net.TCPConn.SetKeepAlivePeriod].
func (c beneath) SetKeepAlivePeriod(d time.Duration) error {
	if tcp, ok := c.Conn.(interface{ SetKeepAlivePeriod(time.Duration) error }); ok {
		return tcp.SetKeepAlivePeriod(d)
	}
	return errors.ErrUnsupported
}

// SetKeepAliveConfig is [net.TCPConn.SetKeepAliveConfig].
func (c beneath) SetKeepAliveConfig(config net.KeepAliveConfig) error {
	if tcp, ok := c.Conn.(interface {
		SetKeepAliveConfig(net.KeepAliveConfig) error
	}); ok {
		return tcp.SetKeepAliveConfig(config)
	}
	return errors.ErrUnsupported
}

// SetReadBuffer sets the size of the receive buffer, also of sockets other than TCP's.
func (c beneath) SetReadBuffer(bytes int) error {
	if socket, ok := c.Conn.(interface{ SetReadBuffer(int) error }); ok {
		return socket.SetReadBuffer(bytes)
	}
	return errors.ErrUnsupported
}

// SetWriteBuffer sets the size of the send buffer, also of sockets other than TCP's.
func (c beneath) SetWriteBuffer(bytes int) error {
	if socket, ok := c.Conn.(interface{ SetWriteBuffer(int) error }); ok {
		return socket.SetWriteBuffer(bytes)
	}
	return errors.ErrUnsupported
}

// A whole is a connection without bytes read ahead, so it may show its socket.
type whole struct{ beneath }

// SyscallConn is the connection's SyscallConn. A meter does not count bytes that it reads or writes.
func (c whole) SyscallConn() (syscall.RawConn, error) {
	socket, ok := c.Conn.(syscall.Conn)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return nil, err
	}
	// The struct hides the methods by which package os would splice past this wrapper (os.File.ReadFrom).
	return struct{ syscall.RawConn }{raw}, nil
}

// A Meter counts the bytes of connections, see [Metered]. The zero value is ready. It is safe for concurrent
// use, and must not be copied.
type Meter struct {
	read, written atomic.Int64
}

// Bytes returns how many bytes were read from the connections, and written to them, so far.
func (m *Meter) Bytes() (read, written int64) { return m.read.Load(), m.written.Load() }

// Metered returns conn with a meter, which counts live: the bytes of Read and Write, and the bytes that a
// session or a copy moves beneath, spliced or not. So it replaces a wrapper that counts. Several connections
// may share a meter; if m is nil, the result is conn itself. The result has the methods that [Wrap] lists, and
// otherwise conn's. It owns conn. It is an [Unwrapper]; code that calls [io.Copy] needs Wrap(Metered(conn, m)).
func Metered(conn net.Conn, m *Meter) net.Conn {
	switch {
	case isNil(conn):
		return nil
	case m == nil:
		return conn
	}
	return &metered{whole{beneath{conn}}, m}
}

type metered struct {
	whole
	meter *Meter
}

func (c *metered) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.meter.read.Add(int64(n))
	return n, err
}

func (c *metered) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.meter.written.Add(int64(n))
	return n, err
}

// RelayReader implements [Unwrapper].
func (c *metered) RelayReader(context.Context, int) (io.Reader, []byte, error) {
	return c.Conn, nil, nil
}

// meters are the meters of the wrappers of a source and of a sink.
type meters struct {
	source, sink []*Meter
}

// newMeters returns nil if there are no meters.
func newMeters(source, sink []*Meter) *meters {
	if len(source)+len(sink) == 0 {
		return nil
	}
	return &meters{source, sink}
}

func noteRead(all []*Meter, n int) {
	for _, m := range all {
		m.read.Add(int64(max(n, 0)))
	}
}

func noteWritten(all []*Meter, n int) {
	for _, m := range all {
		m.written.Add(int64(max(n, 0)))
	}
}

// The meters count the moves of a pair.

func (p *pair) recv(b []byte) (n int, err error) {
	if n, err = p.source.recv(b); p.meters != nil {
		noteRead(p.meters.source, n)
	}
	return n, err
}

func (p *pair) fill(c splicePipe, max int) (n int, err error) {
	if n, err = p.source.fill(c, max); p.meters != nil {
		noteRead(p.meters.source, n)
	}
	return n, err
}

func (p *pair) send(b []byte) (n int, err error) {
	if n, err = p.sink.send(b); p.meters != nil {
		noteWritten(p.meters.sink, n)
	}
	return n, err
}

func (p *pair) drain(c splicePipe, max int) (n int, err error) {
	if n, err = p.sink.drain(c, max); p.meters != nil {
		noteWritten(p.meters.sink, n)
	}
	return n, err
}

func (p *pair) transfer(max int) (n int, op string, err error) {
	if n, op, err = p.source.transfer(p.sink, max); p.meters != nil {
		noteRead(p.meters.source, n)
		noteWritten(p.meters.sink, n)
	}
	return n, op, err
}

// Stream makes a connection of a stream such as an end of a pipe, a terminal or a channel of another protocol, so
// that it can be joined. It declares that s is a stream of bytes, not of messages. So a Read that waits may have a
// small buffer: 1 KiB or 8 KiB as long as the reads return less than that, and 64 KiB otherwise. This also helps a
// wrapper of a connection: its Read otherwise gets at least 32 KiB, as from io.Copy. It changes nothing for a
// connection of a known kind.
//
// If s is no connection, the result has s's deadlines if there are any (SetDeadline, SetReadDeadline,
// SetWriteDeadline), and returns os.ErrNoDeadline otherwise: then a session that is cut closes it. If s has
// CloseWrite() error, a session passes the other side's end of file on by that, although the result has no such
// method; otherwise it cannot (FallbackHalfClose). The result has no addresses. It is an [Unwrapper], so an
// [*os.File] is moved beneath it. It owns s: closing it closes s.
func Stream(s io.ReadWriteCloser) net.Conn {
	if isNil(s) {
		return nil
	}
	c, ok := s.(net.Conn)
	if !ok {
		return &stream{s}
	}
	if framingOf(c) != unknown {
		return c
	}
	return &streamConn{beneath{c}}
}

// A streamConn is a connection that is a stream.
type streamConn struct{ beneath }

func (s *streamConn) RelayReader(context.Context, int) (io.Reader, []byte, error) {
	return s.Conn, nil, nil
}

type stream struct{ io.ReadWriteCloser }

func (s *stream) RelayReader(context.Context, int) (io.Reader, []byte, error) {
	return s.ReadWriteCloser, nil, nil
}

func (s *stream) RelayWriter() io.Writer { return s.ReadWriteCloser }

func (s *stream) LocalAddr() net.Addr { return nil }

func (s *stream) RemoteAddr() net.Addr { return nil }

func (s *stream) SetDeadline(t time.Time) error {
	if d, ok := s.ReadWriteCloser.(deadliner); ok {
		return d.SetDeadline(t)
	}
	return os.ErrNoDeadline
}

func (s *stream) SetReadDeadline(t time.Time) error {
	if d, ok := s.ReadWriteCloser.(interface{ SetReadDeadline(time.Time) error }); ok {
		return d.SetReadDeadline(t)
	}
	return os.ErrNoDeadline
}

func (s *stream) SetWriteDeadline(t time.Time) error {
	if d, ok := s.ReadWriteCloser.(interface{ SetWriteDeadline(time.Time) error }); ok {
		return d.SetWriteDeadline(t)
	}
	return os.ErrNoDeadline
}
