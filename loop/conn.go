package loop

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/bits"
	"net"
	"net/netip"
	"os"
	"reflect"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"time"
)

// ErrIdle is returned by the handler of a [Server] to wait for the client without keeping anything: the handler's
// coroutine ends, and the handler is called again when bytes, the end of file or an error come, or when the read
// deadline has passed. If it took bytes and left some, it is called again at once. If it took none, and 65,536 are
// buffered, the connection ends with [ErrBufferFull].
var ErrIdle = errors.New("the handler waits for the client, without a coroutine")

// ErrBufferFull is wrapped by the error of a [Conn.Peek], [Conn.Next] or [Conn.More] that would have to buffer
// more than 65,536 bytes. Nothing is lost: take some, or use Read.
var ErrBufferFull = errors.New("more than 65536 bytes would have to be buffered")

const (
	highMark = 64 << 10 // pending bytes from which on a Write waits
	lowMark  = 16 << 10 // pending bytes at which a waiting Write goes on, and from which on a Write needs no Flush
	maxPeek  = maxBuffer
	maxCalls = 16 // system calls of a connection before others of its loop have their turn
)

// A Conn is a connection with a handler that runs as a coroutine of a loop, see [Server]. It is a [net.Conn]:
// where a method would wait, the loop serves others; no goroutine is parked or woken, and the thread does not
// change. It comes from a Server: the zero Conn cannot be used.
//
// Only the handler, on its own coroutine, may call methods other than [Conn.AsyncWrite] and [Conn.RemoteAddr].
// It must not block in any other way, for that stops its whole loop; [Conn.Go] runs code that blocks on a
// goroutine. With [Server.Callbacks] a method that would wait fails with [ErrIdle], and other handlers of the
// loop may use the connection too: they flush what they write. runtime.LockOSThread within a coroutine is fatal
// to the process (coroswitch in the runtime's coro.go).
type Conn struct { // 224 bytes, a size class of the runtime: see TestMemoryOfIdleHandlers
	group *serving
	id    ID
	peer  netip.AddrPort
	co    coroutine
	timer Timer

	in, out         *buffer
	readErr         error // io.EOF or a failure; set for good
	failure         error // of a write; set for good
	readBy, writeBy int64 // by the loop's clock; 0: no deadline
	timerAt         int64 // time that the timer is armed for
	context         any

	fd        int32 // owned; -1 when it is closed
	waits     uint8 // Readable or Writable: the event that ends the coroutine's wait; 0: it waits for neither
	calls     uint8 // system calls since others of the loop had their turn
	over      bool  // the handler has returned
	expired   bool  // a deadline has passed during the wait
	dry       bool  // a read would return EAGAIN, until the next event
	full      bool  // a write would return EAGAIN, until the next event
	unsure    bool  // a short read may leave bytes: before an end of file or an error, at urgent data, and on a unix socket at descriptors
	closing   bool  // to be closed when all is written
	idling    bool  // the handler has returned ErrIdle
	elsewhere bool  // the handler is in Go
	took      bool  // the handler has taken bytes since it was called
	fresh     bool  // the handler was called for bytes that it has not looked at
}

// Context returns what SetContext has set, or nil.
func (c *Conn) Context() any { return c.context }

// SetContext keeps a value with the connection, for the next call of a handler that returns [ErrIdle].
func (c *Conn) SetContext(x any) { c.context = x }

// Loop returns the loop that serves the connection.
func (c *Conn) Loop() *Loop { return c.group.loop }

// Read implements [net.Conn]. It flushes written bytes before it waits.
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

// read reads once. It also returns EAGAIN if others are to have their turn first.
func (c *Conn) read(p []byte) (int, error) {
	switch {
	case c.elsewhere:
		return 0, c.errorOf("read", ErrElsewhere)
	case c.closed():
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
	case err == syscall.EAGAIN && c.unsure && c.peer.IsValid() && stoppedAtMark(int(c.fd)):
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
	c.dry = n < len(p) && !c.unsure
	return n, nil
}

// Peek returns the next n bytes, at most 65,536, without taking them. They are valid until the next call of a
// method that reads. There are fewer only with an error: io.EOF at the end, [ErrBufferFull], [bufio.ErrNegativeCount],
// or an error of Read.
func (c *Conn) Peek(n int) ([]byte, error) {
	c.fresh = false
	for c.in.len() < n {
		if err := c.fill(n); err != nil {
			return c.in.bytes(), err
		}
	}
	switch {
	case n < 0:
		return nil, bufio.ErrNegativeCount
	case n == 0:
		return nil, nil
	}
	return c.in.bytes()[:n:n], nil
}

// Next takes n bytes: it returns them as Peek does, and the next read begins after them. With an error it takes
// none.
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

// More waits for further bytes, and adds them to the bytes that Buffered returns. A handler that was called for
// bytes, see [ErrIdle], already has them: then its first More does nothing. More fails as a Read does, with io.EOF
// at the end, or with [ErrBufferFull] if 65,536 bytes are buffered.
func (c *Conn) More() error {
	if c.fresh {
		c.fresh = false
		return nil
	}
	return c.fill(c.in.len() + 1)
}

// Buffered returns the bytes that were read and not yet taken. They are valid until the next call of a method
// that reads.
func (c *Conn) Buffered() []byte {
	c.fresh = false
	return c.in.bytes()
}

// fill reads once into a buffer with room for n bytes. While it waits for the first byte it keeps no buffer.
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

// take drops n bytes from the front of the buffer.
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

// Write implements [net.Conn]. It gathers short pieces, which are written when the handler flushes, waits, or
// returns, or when there are 16 KiB of them. If 64 KiB are pending it waits until 16 KiB are left. An error of
// the connection may come from an earlier Write.
func (c *Conn) Write(p []byte) (int, error) {
	total := 0
	for {
		if err := c.mayWrite(); err != nil || len(p) == 0 {
			return total, err
		}
		if c.group.Callbacks && (c.out.len() >= lowMark || c.calls >= maxCalls) { // a callback never waits
			if err := c.queue(p); err != nil {
				return total, err
			}
			return total + len(p), nil
		}
		if c.calls >= maxCalls || c.full && c.out.len() >= highMark {
			if err := c.wait(Writable); err != nil {
				return total, c.errorOf("write", err)
			}
			continue
		}
		n := 0
		if c.out == nil && len(p) >= lowMark && !c.full { // written without a copy
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

// mayWrite returns why nothing can be written, or nil.
func (c *Conn) mayWrite() error {
	switch {
	case c.elsewhere:
		return c.errorOf("write", ErrElsewhere)
	case c.failure != nil:
		return c.failure
	case c.closed():
		return c.errorOf("write", net.ErrClosed)
	case c.passed(c.writeBy):
		return c.errorOf("write", os.ErrDeadlineExceeded)
	}
	return nil
}

func (c *Conn) closed() bool { return c.fd < 0 || c.closing }

// Flush writes what is pending, and waits until the kernel has taken all of it.
func (c *Conn) Flush() error {
	if c.elsewhere {
		return c.errorOf("write", ErrElsewhere)
	}
	if c.closed() {
		return c.errorOf("write", net.ErrClosed)
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

// flush writes as much of the pending bytes as the kernel takes.
func (c *Conn) flush() {
	for c.out != nil && !c.full && c.failure == nil {
		if n := c.send(c.out.bytes()); c.out != nil { // otherwise send has failed
			if c.out.r += n; c.out.len() == 0 {
				c.drop(&c.out)
			}
		}
	}
}

// send writes once. It keeps an error for the next call.
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

// Pending returns how many written bytes the kernel has not taken yet.
func (c *Conn) Pending() int { return c.out.len() }

// AsyncWrite queues a copy of p behind what was written before. It may be called by any goroutine at any time,
// and does not wait. Its error wraps os.ErrClosed if the loop is closed. It drops bytes for a connection that
// has ended meanwhile. A connection with 16 MiB pending drops them too, and then fails.
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

// queue appends p to the pending bytes, and writes what the kernel takes.
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

// CloseWrite flushes, and shuts down the sending side of the connection.
func (c *Conn) CloseWrite() error {
	if err := c.Flush(); err != nil {
		return err
	}
	if err := shutdownWrite(int(c.fd)); err != nil {
		return c.errorOf("close", os.NewSyscallError("shutdown", err))
	}
	return nil
}

// Close implements [net.Conn]. Pending bytes are written first, in the background, for at most ten seconds. The
// end of the handler does the same.
func (c *Conn) Close() error {
	if c.closed() {
		return c.errorOf("close", net.ErrClosed)
	}
	c.closes()
	c.flush()
	if c.idling || c.waits != 0 {
		c.group.loop.Again(c.id)
	}
	return nil
}

// closes begins the close. A passed write deadline no longer counts: it fails a Write, but not the bytes that an
// earlier Write has taken. The Close of a *tls.Conn sets one.
func (c *Conn) closes() {
	if c.closing = true; c.passed(c.writeBy) {
		c.writeBy = 0
	}
}

// LocalAddr implements [net.Conn]. It returns nil once the connection is closed, after [Server.Ended], or
// detached.
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

// rearm arms the timer for a new deadline that another handler of the loop has set.
func (c *Conn) rearm() error {
	switch {
	case c.closed():
		return c.errorOf("set", net.ErrClosed)
	case c.idling:
		c.armIdle()
	case c.waits == uint8(Readable) && c.readBy != 0:
		c.armFor(c.readBy)
	case c.waits == uint8(Writable) && c.writeBy != 0:
		c.armFor(c.writeBy)
	}
	return nil
}

// until returns t by the loop's clock, or 0 for never.
func (c *Conn) until(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return max(c.group.loop.clock()+min(int64(time.Until(t)), maxTimer), 1)
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

// A buffer holds the bytes of a [Conn] that wait to be taken or to be written: b[r:w].
type buffer struct {
	b    []byte
	r, w int
}

const (
	minBuffer = 4 << 10
	maxBuffer = 64 << 10 // larger buffers are not used again
)

// buffers has the free buffers of 4, 8, 16, 32 and 64 KiB that no loop keeps.
var buffers [5]sync.Pool

// leases are the free buffers that a loop keeps, a few of each size, because the collector empties the pools. To
// make a buffer needs more stack than a coroutine has, and a stack that has grown does not shrink.
type leases [len(buffers)]struct {
	n    int
	kept [keptBuffers]*buffer
}

const keptBuffers = 16

func classOf(n int) int { return bits.Len(uint(max(n, minBuffer)-1)) - bits.Len(uint(minBuffer-1)) }

// lease returns a buffer of n bytes or more.
func (l *leases) lease(n int) *buffer {
	k := classOf(n)
	if k >= len(l) {
		return makeBuffer(k)
	}
	of := &l[k]
	if of.n == 0 {
		if b, ok := buffers[k].Get().(*buffer); ok {
			return b
		}
		return makeBuffer(k)
	}
	of.n--
	return of.kept[of.n]
}

// makeBuffer makes a buffer of a power of two bytes, so that pieces added one by one are copied only a few
// times.
func makeBuffer(class int) *buffer { return &buffer{b: make([]byte, minBuffer<<class)} }

// release takes back a buffer.
func (l *leases) release(b *buffer) {
	k := classOf(len(b.b))
	if k >= len(l) {
		return
	}
	b.r, b.w = 0, 0
	if of := &l[k]; of.n < keptBuffers {
		of.kept[of.n] = b
		of.n++
		return
	}
	buffers[k].Put(b)
}

func (b *buffer) len() int {
	if b == nil {
		return 0
	}
	return b.w - b.r
}

func (b *buffer) bytes() []byte {
	if b == nil {
		return nil
	}
	return b.b[b.r:b.w:b.w]
}

// room returns a buffer with b's bytes and room for n bytes in all, but for at least one more byte.
func (l *leases) room(b *buffer, n int) *buffer {
	switch n = max(n, b.len()+1); {
	case b == nil:
		return l.lease(n)
	case n <= len(b.b)-b.r:
	case n <= len(b.b):
		b.w = copy(b.b, b.b[b.r:b.w])
		b.r = 0
	default:
		to := l.lease(n)
		to.w = copy(to.b, b.b[b.r:b.w])
		l.release(b)
		return to
	}
	return b
}

// ErrNoCoroutine is the error of [Conn.Go] in a callback, which has no coroutine to come back to: start a
// goroutine, return [ErrIdle], and answer by [Conn.AsyncWrite].
var ErrNoCoroutine = errors.New("penstock: loop: Go was called in a callback, which must not wait: start a goroutine that calls AsyncWrite, and return ErrIdle")

// Go calls f on a new goroutine, where f may block, and returns when f does; the loop serves others meanwhile.
// The only method of the connection that f may use is AsyncWrite. A panic in f counts as one in the handler. In
// a callback, Go fails with [ErrNoCoroutine] and does not call f.
func (c *Conn) Go(f func()) error {
	switch {
	case c.group.Callbacks:
		return ErrNoCoroutine
	case !c.atWork():
		return ErrElsewhere
	}
	if c.group.over || c.fd < 0 {
		return net.ErrClosed
	}
	c.flush()
	var panicked any
	c.elsewhere = true
	c.group.away.Add(1)
	go func() {
		returned := false
		defer func() {
			if !returned {
				if panicked = recover(); panicked == nil {
					panicked = errGoexit
				}
			}
			_ = c.group.loop.Post(c.back)
			c.group.away.Done()
		}()
		f()
		returned = true
	}()
	c.notePlace()
	c.co.pause(struct{}{})
	if panicked != nil {
		panic(panicked)
	}
	return nil
}

// back resumes the coroutine after Go.
func (c *Conn) back() {
	if c.elsewhere {
		c.elsewhere = false
		c.step()
	}
}

// Detach takes the connection off its loop for good. It returns a connection of package net that belongs to the
// caller, and the bytes that were read from the client and not taken; the handler should then return. Detach first
// flushes, which may wait. In a callback it returns ErrIdle if the kernel does not take all; the handler is called
// again when bytes come. Use it for what the loop does not do, such as relay.Join:
//
//	conn, ahead, err := c.Detach()
//	...
//	go relay.Join(ctx, relay.Prefixed(conn, ahead), upstream)
//
// After an error of Flush the connection is as it was; after any other error it is closed. [Server.Ended] is
// called at the end of the handler as usual.
func (c *Conn) Detach() (conn net.Conn, ahead []byte, err error) {
	if err := c.mayWrite(); err != nil {
		return nil, nil, err
	}
	for c.flush(); c.out != nil; {
		if err := c.Flush(); err != nil {
			return nil, nil, err
		}
	}
	if c.failure != nil {
		return nil, nil, c.failure
	}
	fd := int(c.fd)
	ahead = append(ahead, c.in.bytes()...)
	c.fd, c.closing = -1, true
	c.drop(&c.in)
	if err := c.group.loop.Detach(c.id); err != nil {
		closeSocket(fd)
		return nil, nil, c.errorOf("detach", err)
	}
	conn, err = Give(fd)
	return conn, ahead, err
}

// notePlace records where a handler that has run for too long waits.
func (c *Conn) notePlace() {
	if s := c.group; s.Slow != nil && s.loop.clock()-s.resumed > int64(s.slowTime()) {
		s.at = waitsAt()
	}
}

// waitsAt returns the place in the handler that called the waiting method.
func waitsAt() string {
	var pcs [16]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	for more := true; more; {
		var f runtime.Frame
		if f, more = frames.Next(); !strings.Contains(f.Function, "/penstock/loop.") {
			return fmt.Sprintf("%s:%d", f.File, f.Line)
		}
	}
	return ""
}

// place returns where the handler begins.
func (s *Server) place() string {
	f := runtime.FuncForPC(reflect.ValueOf(s.Handle).Pointer())
	file, line := f.FileLine(f.Entry())
	return fmt.Sprintf("%s:%d", file, line)
}

// A coroutine runs a handler. It is a pulled iterator (iter.Pull): a switch goes straight from one goroutine to
// the other on the same thread, and takes about 100 ns.
type coroutine struct {
	resume func() (struct{}, bool) // run until the next wait, or the end
	pause  func(struct{}) bool     // wait, called on the coroutine
	err    error                   // the handler's, at the end
}

// ErrElsewhere is the error of a method of [Conn] that would have to wait, but was not called on the handler's
// coroutine: within Go, or on another goroutine.
var ErrElsewhere = errors.New("penstock: loop: the call would wait, but was not made on the coroutine of the connection's handler: use AsyncWrite elsewhere")

// A PanicError is the error of a handler that has panicked.
type PanicError struct {
	Value any
	Stack []byte
}

// Error returns the panic's value in one line.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns the panic's value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// errGoexit is the error of a handler that has called runtime.Goexit.
var errGoexit = errors.New("penstock: loop: the handler has called runtime.Goexit")

// start makes the coroutine of a handler. The first resume begins it, and must come before the next start.
func (c *Conn) start() {
	c.over, c.co.err, c.group.first = false, nil, c
	c.co.resume, _ = iter.Pull(c.group.body)
}

// run is the body of a coroutine.
func (s *serving) run(yield func(struct{}) bool) {
	c := s.first
	c.co.pause = yield
	exits := true
	defer func() {
		c.over = true
		if v := recover(); v != nil {
			c.co.err = panicked(v)
		} else if exits {
			// Goexit would also end the goroutine that has resumed this one: the loop's. A new goroutine
			// resumes this one instead.
			c.co.err = errGoexit
			yield(struct{}{})
		}
	}()
	c.co.err = s.Handle(c)
	exits = false
}

// panicked returns the error of a handler that is panicking. It is a separate function so that coroutines need
// no stack for it.
//
//go:noinline
func panicked(v any) error { return &PanicError{Value: v, Stack: debug.Stack()} }

// finish gives up an ended coroutine.
func (c *Conn) finish() {
	if c.co.err == errGoexit {
		go c.co.resume()
	}
	c.co = coroutine{}
}

// wait lets the loop serve others until the awaited event or its deadline comes.
func (c *Conn) wait(what Events) error {
	switch {
	case c.group.Callbacks:
		return ErrIdle
	case !c.atWork():
		return ErrElsewhere
	}
	by := c.readBy
	if what == Writable {
		by = c.writeBy
	} else {
		c.flush()
	}
	if by != 0 {
		c.armFor(by)
	}
	if c.calls >= maxCalls {
		c.group.loop.Again(c.id)
	}
	c.waits, c.expired = uint8(what), false
	return c.yield()
}

// atWork reports whether the coroutine is running: only then can a method wait.
func (c *Conn) atWork() bool {
	return !c.elsewhere && c.co.pause != nil && !c.over && c.waits == 0
}

// yield switches to the loop.
func (c *Conn) yield() error {
	if c.group.over {
		return net.ErrClosed
	}
	c.notePlace()
	c.co.pause(struct{}{})
	switch {
	case c.group.over || c.fd < 0:
		return net.ErrClosed
	case c.expired:
		return os.ErrDeadlineExceeded
	}
	return nil
}
