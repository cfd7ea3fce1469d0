package loop

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"
)

// ErrIdle is returned by the handler of a [Server] that waits for the client and keeps nothing meanwhile: its
// coroutine ends, and the handler is called again when bytes come, the end of file or an error, or when the read
// deadline has passed. If it took bytes and left some, it is called again at once.
var ErrIdle = errors.New("the handler waits for the client, without a coroutine")

// ErrBufferFull is wrapped by the error of a [Conn.Peek], [Conn.Next] or [Conn.More] that would have more than 65,536
// bytes at once. Nothing is lost: take some, or Read.
var ErrBufferFull = errors.New("more than 65536 bytes to look at")

const (
	highMark = 64 << 10 // pending bytes from which a Write waits
	lowMark  = 16 << 10 // pending bytes until which it does, and from which it writes before it is asked to
	maxPeek  = maxBuffer
	maxCalls = 16 // system calls of a connection until others of its loop have their turn
)

// A Conn is a connection whose handler runs as a coroutine of a loop, see [Server]. It is a [net.Conn]: where
// a method would wait, the loop serves others, and no goroutine is parked or woken and no thread is changed. It comes from a
// Server: the zero Conn cannot be used.
//
// All methods but [Conn.AsyncWrite] and [Conn.RemoteAddr] are for the handler alone, on its own coroutine. A
// handler must not block otherwise, for that stops its whole loop; [Conn.Go] leaves for a goroutine. With
// [Server.Callbacks] a method that would wait fails with [ErrIdle], and other handlers of the loop may use the
// connection too: they flush what they write.
// runtime.LockOSThread within a coroutine is fatal to the process (coroswitch of the runtime's coro.go).
type Conn struct { // 224 bytes, a size class of the runtime: see TestMemoryOfIdleHandlers
	group *serving
	id    ID
	peer  netip.AddrPort
	co    coroutine
	timer Timer

	in, out         *buffer
	readErr         error // of the last read that there is: io.EOF, or a failure
	failure         error // of a write
	readBy, writeBy int64 // by the loop's clock; 0: no deadline
	timerAt         int64 // what the timer is armed for
	context         any

	fd        int32 // owned; -1 when it is closed
	waits     uint8 // Readable or Writable, which end the coroutine's wait; 0: it does not wait for the socket
	calls     uint8 // since the others of the loop had their turn
	over      bool  // the handler has returned
	expired   bool  // a deadline has passed while it waited
	dry       bool  // a read would say EAGAIN, until the next event
	full      bool  // a write would say EAGAIN, until the next event
	ended     bool  // an end of file or an error comes, so a short read is not the last one
	closing   bool  // it is closed when all is written
	idling    bool  // its handler has returned ErrIdle
	elsewhere bool  // it is in Go
	took      bool  // the handler has taken bytes since it was called
	fresh     bool  // it was called for bytes that it has not looked at
}

// Context returns what was set by SetContext, nil at first.
func (c *Conn) Context() any { return c.context }

// SetContext keeps a value with the connection, for a handler that returns [ErrIdle].
func (c *Conn) SetContext(x any) { c.context = x }

// Loop returns the loop that serves the connection.
func (c *Conn) Loop() *Loop { return c.group.loop }

// Read implements [net.Conn]. What was written is flushed before it waits.
func (c *Conn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	c.fresh = false
	if c.in.len() > 0 {
		n := copy(p, c.in.bytes())
		c.take(n)
		return n, nil
	}
	c.drop(&c.in)
	for {
		n, err := c.read(p)
		if err != syscall.EAGAIN {
			return n, err
		}
		if err := c.wait(Readable); err != nil {
			return 0, c.errorOf("read", err)
		}
	}
}

// read reads once. It says EAGAIN also if others are to have their turn first.
func (c *Conn) read(p []byte) (int, error) {
	switch {
	case c.elsewhere:
		return 0, c.errorOf("read", ErrElsewhere)
	case c.fd < 0 || c.closing:
		return 0, c.errorOf("read", net.ErrClosed)
	case c.readErr != nil:
		return 0, c.readErr
	case c.passed(c.readBy):
		return 0, c.errorOf("read", os.ErrDeadlineExceeded)
	case c.dry || c.calls >= maxCalls:
		return 0, syscall.EAGAIN
	}
	c.calls++
	n, err := readSocket(int(c.fd), p)
	switch {
	case err == syscall.EINTR:
		return c.read(p)
	case err == syscall.EAGAIN:
		c.dry = true
		return 0, err
	case err != nil:
		c.readErr = c.errorOf("read", os.NewSyscallError("read", err))
	case n == 0:
		c.readErr = io.EOF
	}
	if c.readErr != nil {
		return c.read(p)
	}
	c.took = !c.idling
	c.dry = n < len(p) && !c.ended
	return n, nil
}

// Peek returns the next n bytes, at most 65,536, without taking them. They are valid until the next call of a
// method that reads. There are fewer only with an error: io.EOF at the end, [ErrBufferFull], or that of a Read.
func (c *Conn) Peek(n int) ([]byte, error) {
	c.fresh = false
	for c.in.len() < n {
		if err := c.fill(n); err != nil {
			return c.in.bytes(), err
		}
	}
	if n == 0 {
		return nil, nil
	}
	return c.in.bytes()[:n:n], nil
}

// Next takes n bytes: it returns them as Peek does, and they do not come again. With an error none are taken.
func (c *Conn) Next(n int) ([]byte, error) {
	p, err := c.Peek(n)
	if err != nil {
		return nil, err
	}
	if n > 0 {
		c.in.r += n
		c.took = true
	}
	return p, nil
}

// More reads what has come behind the bytes that Buffered returned, and waits until there is something. A handler that
// was called for bytes, see [ErrIdle], has them at once. It fails as a Read does, with io.EOF at the end, or with
// [ErrBufferFull] if 65,536 bytes are there already.
func (c *Conn) More() error {
	if c.fresh {
		c.fresh = false
		return nil
	}
	return c.fill(c.in.len() + 1)
}

// Buffered returns the bytes that have been read and were not taken. They are valid until the next call of a
// method that reads.
func (c *Conn) Buffered() []byte {
	c.fresh = false
	return c.in.bytes()
}

// fill reads once into a buffer that has room for n bytes. None is kept while it waits for the first byte.
func (c *Conn) fill(n int) error {
	if n > maxPeek {
		return c.errorOf("read", ErrBufferFull)
	}
	for {
		c.in = c.group.leases.room(c.in, n)
		m, err := c.read(c.in.b[c.in.w:])
		c.in.w += m
		if c.in.len() == 0 {
			c.drop(&c.in)
		}
		if err != syscall.EAGAIN {
			return err
		}
		if err := c.wait(Readable); err != nil {
			return c.errorOf("read", err)
		}
	}
}

// take drops n bytes from the front.
func (c *Conn) take(n int) {
	c.took = true
	if c.in.r += n; c.in.len() == 0 {
		c.drop(&c.in)
	}
}

// drop gives a buffer back.
func (c *Conn) drop(b **buffer) {
	if *b != nil {
		c.group.leases.release(*b)
		*b = nil
	}
}

// Write implements [net.Conn]. Short pieces are gathered, and written when the handler flushes, waits, or
// returns, or when there are 16 KiB of them. It waits while 64 KiB are pending, until there are 16. An error
// of the connection may be that of an earlier Write.
func (c *Conn) Write(p []byte) (int, error) {
	total := 0
	for {
		if err := c.mayWrite(); err != nil || len(p) == 0 {
			return total, err
		}
		if c.group.Callbacks && (c.out.len() >= lowMark || c.calls >= maxCalls) { // it never waits
			return total + len(p), c.queue(p)
		}
		if c.calls >= maxCalls || c.full && c.out.len() >= highMark {
			if err := c.wait(Writable); err != nil {
				return total, c.errorOf("write", err)
			}
			continue
		}
		n := 0
		if c.out == nil && len(p) >= lowMark && !c.full { // not copied
			n = c.send(p)
		} else {
			n = min(len(p), highMark-c.out.len())
			c.out = c.group.leases.room(c.out, c.out.len()+n)
			c.out.w += copy(c.out.b[c.out.w:], p[:n])
			if c.out.len() >= lowMark {
				c.flush()
			}
		}
		total, p = total+n, p[n:]
	}
}

// mayWrite says why nothing can be written.
func (c *Conn) mayWrite() error {
	switch {
	case c.elsewhere:
		return c.errorOf("write", ErrElsewhere)
	case c.failure != nil:
		return c.failure
	case c.fd < 0 || c.closing:
		return c.errorOf("write", net.ErrClosed)
	case c.passed(c.writeBy):
		return c.errorOf("write", os.ErrDeadlineExceeded)
	}
	return nil
}

// Flush writes what is pending, and waits until the kernel has all of it.
func (c *Conn) Flush() error {
	if c.elsewhere {
		return c.errorOf("write", ErrElsewhere)
	}
	for c.flush(); c.out != nil && c.failure == nil; c.flush() {
		if c.passed(c.writeBy) {
			return c.errorOf("write", os.ErrDeadlineExceeded)
		}
		if err := c.wait(Writable); err != nil {
			return c.errorOf("write", err)
		}
	}
	return c.failure
}

// flush writes what the kernel takes of what is pending.
func (c *Conn) flush() {
	for c.out != nil && !c.full && c.failure == nil {
		if n := c.send(c.out.bytes()); c.out != nil { // else it has failed
			if c.out.r += n; c.out.len() == 0 {
				c.drop(&c.out)
			}
		}
	}
}

// send writes once. An error is kept for the next call.
func (c *Conn) send(p []byte) int {
	c.calls++
	n, err := sendSocket(int(c.fd), p)
	switch {
	case err == syscall.EINTR:
		return 0
	case err == syscall.EAGAIN:
		c.full = true
	case err != nil:
		c.failure = c.errorOf("write", os.NewSyscallError("sendto", err))
		c.drop(&c.out)
	}
	return max(n, 0)
}

// Pending returns how many bytes were written and have not gone to the kernel.
func (c *Conn) Pending() int { return c.out.len() }

// AsyncWrite has p written behind what was written before; it is copied. It may be called by any goroutine at
// any time, and does not wait. The error wraps os.ErrClosed if the loop is closed; bytes for a connection
// that has ended meanwhile are dropped, as are those for one with 16 MiB pending, which then fails.
func (c *Conn) AsyncWrite(p []byte) error {
	p = append([]byte(nil), p...)
	return c.group.loop.Post(func() { c.push(p) })
}

var errBehind = errors.New("16 MiB are pending: the peer does not read")

func (c *Conn) push(p []byte) {
	if c.fd < 0 || c.closing || c.failure != nil {
		return
	}
	if c.queue(p) != nil {
		c.Close()
	}
}

// queue adds p to the pending bytes, and writes those that the kernel takes.
func (c *Conn) queue(p []byte) error {
	if c.out.len()+len(p) > 16<<20 {
		c.failure = c.errorOf("write", errBehind)
		return c.failure
	}
	c.out = c.group.leases.room(c.out, c.out.len()+len(p))
	c.out.w += copy(c.out.b[c.out.w:], p)
	c.flush()
	return nil
}

// CloseWrite flushes, and shuts the connection's own side.
func (c *Conn) CloseWrite() error {
	if err := c.Flush(); err != nil {
		return err
	}
	if err := shutdownWrite(int(c.fd)); err != nil {
		return c.errorOf("close", os.NewSyscallError("shutdown", err))
	}
	return nil
}

// Close implements [net.Conn]. What is pending is written first, in the background, for at most ten seconds. The
// end of the handler does the same.
func (c *Conn) Close() error {
	if c.fd < 0 || c.closing {
		return c.errorOf("close", net.ErrClosed)
	}
	c.closing = true
	c.flush()
	if c.idling || c.waits != 0 {
		c.group.loop.Again(c.id)
	}
	return nil
}

// LocalAddr implements [net.Conn]. It is nil for a connection that is closed, after [Server.Ended], or detached.
func (c *Conn) LocalAddr() net.Addr { return localAddr(int(c.fd)) }

// RemoteAddr implements [net.Conn]. It may be called by any goroutine at any time.
func (c *Conn) RemoteAddr() net.Addr {
	if !c.peer.IsValid() {
		return &net.UnixAddr{Net: "unix"}
	}
	return net.TCPAddrFromAddrPort(c.peer)
}

// SetDeadline implements [net.Conn].
func (c *Conn) SetDeadline(t time.Time) error {
	c.readBy = c.until(t)
	c.writeBy = c.readBy
	return c.rearm()
}

// SetReadDeadline implements [net.Conn].
func (c *Conn) SetReadDeadline(t time.Time) error { c.readBy = c.until(t); return c.rearm() }

// SetWriteDeadline implements [net.Conn].
func (c *Conn) SetWriteDeadline(t time.Time) error { c.writeBy = c.until(t); return c.rearm() }

// rearm has a new deadline looked at, where another handler of the loop has set it.
func (c *Conn) rearm() error {
	switch {
	case c.idling:
		c.armIdle()
	case c.waits == uint8(Readable) && c.readBy != 0:
		c.armFor(c.readBy)
	case c.waits == uint8(Writable) && c.writeBy != 0:
		c.armFor(c.writeBy)
	}
	return nil
}

// until returns a time by the loop's clock; 0: never.
func (c *Conn) until(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return max(c.group.loop.clock()+int64(time.Until(t)), 1)
}

func (c *Conn) passed(by int64) bool { return by != 0 && by <= c.group.loop.clock() }

// errorOf describes a failure as package net does.
func (c *Conn) errorOf(op string, err error) error {
	if err == ErrIdle {
		return err
	}
	a := c.RemoteAddr()
	return &net.OpError{Op: op, Net: a.Network(), Addr: a, Err: err}
}
