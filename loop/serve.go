package loop

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/penstock/penstock/internal/closed"
)

// A Server serves connections on loops. Each connection has a handler that runs as a coroutine of its loop and
// is written in sequence, like a handler on a goroutine. Do not change the fields while it serves.
type Server struct {
	// Handle serves a connection, which is closed when Handle has returned and all is written. It is called on
	// the loop, so it may block only in methods of the connection. If it returns [ErrIdle], it is called again,
	// on a new coroutine, when bytes or the end of file come. A panic, or runtime.Goexit, ends only its
	// connection.
	Handle func(c *Conn) error

	// With Callbacks, Handle is called without a coroutine, when the connection was accepted and whenever bytes,
	// the end of file or an error have come. A method that would wait for the client fails with ErrIdle, and
	// Handle returns that. Write never waits: it fails when 16 MiB are pending, and Handle is not called again
	// until at most 16 KiB are pending. [Conn.Go] is refused. After the end of file, or the read deadline, the
	// connection is closed when Handle returns, whatever it returns. The connection fails when the write deadline
	// passes while bytes are pending. runtime.Goexit ends the server, with an error. A tls.Conn needs a coroutine.
	Callbacks bool

	// Tick is called when a loop begins, then each time the returned duration has passed; 0 ends it. nil: nothing
	// is called.
	Tick func(l *Loop) time.Duration

	// Ended is called on the loop right before a connection is closed, with its handler's error: a
	// [*PanicError] if the handler has panicked. Nothing can be read or written any more. A panic in Ended,
	// Slow or Tick is not caught. nil: nothing is called.
	Ended func(c *Conn, err error)

	// Drain is called on the loop for each connection when [Server.Shutdown] begins, and later when a handler
	// returns ErrIdle and no bytes of the client are left. It may close the connection, or set a deadline that
	// ends the wait of its handler. nil: a connection is closed if its handler has returned ErrIdle and no bytes of
	// the client are left, and otherwise left to its handler.
	Drain func(c *Conn)

	// Paused is called on a loop when it cannot accept a connection, see [Acceptor], or cannot watch one, which is
	// then reset. nil: nothing is called.
	Paused func(err error)

	// Slow is called on the loop after a handler has run for longer than SlowTime without a wait. at is the place
	// (FILE:LINE) where the handler then waits, or where it begins if it has returned. nil: the time is not
	// measured.
	Slow     func(c *Conn, took time.Duration, at string)
	SlowTime time.Duration // 0: 10 ms

	// Stuck is called once, on a separate goroutine, when a handler has been running for a second without a
	// wait, with the stacks of the running handlers. Meanwhile the loop serves nothing else, and nothing can
	// end the handler from outside. Stuck runs at the same time as handlers. Collecting the stacks stops all
	// goroutines, for tens of milliseconds if there are 10,000. nil: handlers are not watched.
	Stuck func(took time.Duration, stacks []byte)

	// Loops is the number of loops; 0: GOMAXPROCS.
	Loops int
	// Config configures the loops; nil: the defaults.
	Config *Config

	mu      sync.Mutex
	present *serve // nil while it does not serve
	closed  bool   // for good
}

// closeTime is how long a connection may take to send what is pending after its handler has returned.
const closeTime = 10 * time.Second

// Serve serves the connections of a listener, each by handle as a coroutine, on GOMAXPROCS loops. It always
// returns an error, and has then closed the listener, see [Server.Serve].
func Serve(l net.Listener, handle func(c *Conn) error) error {
	return (&Server{Handle: handle}).Serve(l)
}

// A serving is one loop's part of a server.
type serving struct {
	*Server
	of       *serve
	loop     *Loop
	listener *Listener
	tick     Timer
	away     sync.WaitGroup
	over     bool // the loop has ended
	draining bool // no further connection is accepted
	empty    bool // draining, and no connection is left
	open     int  // number of connections

	began atomic.Int64 // when the running handler was called; 0: none runs, or there is no Server.Stuck

	body    func(yield func(struct{}) bool) // of every coroutine
	leases  leases
	first   *Conn  // the connection with which the coroutine begins
	resumed int64  // clock at the last resume, with Server.Slow
	at      string // where the running, slow handler waits
}

// Accepted implements [Acceptor].
func (s *serving) Accepted(fd int, peer netip.AddrPort) {
	c := &Conn{group: s, fd: int32(fd), peer: peer, unsure: !peer.IsValid()}
	id, err := s.loop.Add(fd, 0, c)
	if err != nil { // for lack of memory, or beyond fs.epoll.max_user_watches
		abortOnClose(fd)
		closeSocket(fd)
		s.Paused(err)
		return
	}
	c.id = id
	s.open++
	c.begin()
}

// Expired implements [Expirer].
func (s *serving) Expired(*Timer) {
	if again := s.Tick(s.loop); again > 0 {
		s.loop.Arm(&s.tick, s, again)
	}
}

// Paused implements [Acceptor].
func (s *serving) Paused(err error) {
	if s.Server.Paused != nil {
		s.Server.Paused(err)
	}
}

// closeAll ends the connections of a loop that has ended.
func (s *serving) closeAll() {
	s.away.Wait()
	s.over = true
	for h := range s.loop.table.handlers() {
		c, ok := h.(*Conn)
		if !ok {
			continue
		}
		for c.co.resume != nil && !c.over {
			c.elsewhere, c.waits = false, 0
			c.co.resume() // each wait fails with net.ErrClosed, until the handler returns
		}
		err := c.co.err
		if c.idling {
			err = net.ErrClosed
		}
		c.finish()
		c.co.err = err
		if c.flush(); c.out != nil && c.failure == nil {
			c.failure = c.errorOf("write", net.ErrClosed)
		}
		c.destroy()
	}
}

// begin calls the handler, on a new coroutine unless it is a callback.
func (c *Conn) begin() {
	c.idling, c.took = false, false
	if !c.group.Callbacks {
		c.start()
	}
	c.step()
}

// run resumes the coroutine, or calls the handler as a callback.
func (c *Conn) run() {
	if !c.group.Callbacks {
		c.co.resume()
		return
	}
	defer func() {
		c.over = true
		if v := recover(); v != nil {
			c.co.err = panicked(v)
		}
	}()
	c.co.err = c.group.Handle(c)
}

// step resumes the coroutine, until it waits or ends.
func (c *Conn) step() {
	c.waits, c.calls = 0, 0
	s := c.group
	if s.Stuck != nil {
		s.began.Store(monotonic())
	}
	if s.Slow == nil {
		c.run()
	} else {
		s.resumed, s.at = s.loop.clock(), ""
		c.run()
		if took := time.Duration(s.loop.clock() - s.resumed); took > s.slowTime() {
			s.Slow(c, took, cmp.Or(s.at, s.place()))
		}
	}
	if s.Stuck != nil {
		s.began.Store(0)
	}
	if c.over {
		c.returned()
		return
	}
	c.settle()
}

func (s *Server) slowTime() time.Duration {
	if s.SlowTime > 0 {
		return s.SlowTime
	}
	return 10 * time.Millisecond
}

// returned continues after the handler has returned.
func (c *Conn) returned() {
	err := c.co.err
	c.finish()
	switch {
	case err != ErrIdle:
	case c.failure != nil:
		err = c.failure
	case c.readErr != nil && !c.ready():
		err = c.readErr
	case c.expired && c.passed(c.readBy): // the handler was called for the deadline
		err = c.errorOf("read", os.ErrDeadlineExceeded)
	case !c.took && c.in.len() >= maxPeek: // nothing more may be read
		err = c.errorOf("read", ErrBufferFull)
	case !c.closing:
		c.idle()
		return
	default:
		err = nil
	}
	c.co.err = err
	c.closes()
	c.flush()
	c.settle()
}

// idle calls the handler when bytes come, or at once if it has left some unread.
func (c *Conn) idle() {
	c.idling = true
	if c.flush(); c.in.len() == 0 {
		c.drop(&c.in)
	}
	c.armIdle()
	if c.ready() || !c.dry || c.readErr != nil { // more may have come already
		c.group.loop.Again(c.id)
	} else if c.group.draining {
		c.drain()
	}
}

// ready reports whether a handler that took bytes has left some.
func (c *Conn) ready() bool { return c.in.len() > 0 && c.took }

// wake calls the handler again if something has come for it, unless much is pending.
func (c *Conn) wake() {
	c.expired = c.passed(c.readBy)
	if c.out.len() > lowMark && !c.expired {
		return
	}
	c.calls = 0
	if !c.ready() && !c.expired {
		n := c.in.len()
		c.in = c.group.leases.room(c.in, n+1)
		m, err := c.read(c.in.b[c.in.w:])
		if c.in.w += m; c.in.len() == 0 {
			c.drop(&c.in)
		}
		if err == syscall.EAGAIN {
			if c.group.draining {
				c.drain()
			}
			return
		}
	}
	c.fresh = c.in.len() > 0 && !c.expired
	c.begin()
}

// settle closes a connection that is closing, once all is written.
func (c *Conn) settle() {
	if !c.closing || c.co.resume != nil || c.elsewhere {
		return
	}
	if c.out != nil && c.failure == nil {
		now := c.group.loop.clock()
		if by := now + int64(closeTime); c.writeBy == 0 || c.writeBy > by {
			c.writeBy = by // the deadline stays, whatever the client does meanwhile
		}
		c.group.loop.Arm(&c.timer, c, time.Duration(max(c.writeBy-now, 0)))
		return
	}
	c.destroy()
}

// destroy closes the connection, unless it was detached.
func (c *Conn) destroy() {
	c.group.loop.Disarm(&c.timer)
	c.group.loop.Drop(c.id)
	if c.fd >= 0 && (c.out != nil || c.failure != nil) { // the peer must not take this for an orderly end, because bytes are missing
		abortOnClose(int(c.fd))
	}
	c.drop(&c.in)
	c.drop(&c.out)
	c.closing = true
	if ended := c.group.Ended; ended != nil {
		ended(c, cmp.Or(c.co.err, c.failure))
	}
	if c.fd >= 0 {
		closeSocket(int(c.fd))
		c.fd = -1
	}
	c.group.open--
	c.group.drained()
}

// Ready implements [Handler].
func (c *Conn) Ready(_ uint8, events Events) {
	if events&(Readable|Urgent|PeerClosed|Failed|HungUp) != 0 {
		c.dry = false
		c.unsure = c.unsure || events&(Urgent|PeerClosed|Failed|HungUp) != 0
	}
	if events&(Writable|Failed|HungUp) != 0 {
		c.full = false
		c.flush()
	}
	switch {
	case c.elsewhere:
	case c.closing && c.co.resume == nil:
		c.settle()
	case c.closing && c.waits != 0:
		c.step()
	case c.idling:
		c.wake()
	case c.waits == uint8(Writable) && events == 0 && c.calls >= maxCalls: // others have had their turn
		c.step()
	case c.waits == uint8(Readable) && !c.dry, c.waits == uint8(Writable) && (!c.full || c.failure != nil) && c.out.len() <= lowMark:
		c.step()
	}
}

// armFor arms the timer for a deadline. It does not postpone an armed timer, so a deadline that moves often
// costs little.
func (c *Conn) armFor(by int64) {
	if !c.timer.Armed() || c.timerAt > by {
		c.timerAt = by
		c.group.loop.Arm(&c.timer, c, time.Duration(max(by-c.group.loop.Now(), 0)))
	}
}

// armIdle arms the timer for the read deadline of an idle connection, and for the write deadline if bytes are
// pending.
func (c *Conn) armIdle() {
	if c.readBy != 0 {
		c.armFor(c.readBy)
	}
	if c.out != nil && c.writeBy != 0 {
		c.armFor(c.writeBy)
	}
}

// expireIdle closes an idle connection with pending bytes that have not gone in time, or calls its handler for
// the read deadline.
func (c *Conn) expireIdle() {
	switch {
	case c.out != nil && c.passed(c.writeBy):
		c.failure = c.errorOf("write", os.ErrDeadlineExceeded)
		c.closing = true
		c.settle()
	case c.passed(c.readBy):
		c.wake()
	default:
		c.armIdle()
	}
}

// Expired implements [Expirer].
func (c *Conn) Expired(*Timer) {
	by := c.readBy
	if c.waits == uint8(Writable) {
		by = c.writeBy
	}
	switch {
	case c.closing && c.co.resume == nil:
		c.destroy()
	case c.idling:
		c.expireIdle()
	case c.waits == 0 || by == 0:
	case !c.passed(by):
		c.armFor(by)
	default:
		c.expired = true
		c.step()
	}
}

// A serve is one call of [Server.Serve].
type serve struct {
	group     *Group
	parts     []*serving // one for each loop
	close     func()     // closes the listening socket; may be called again
	accepting atomic.Int32
	filled    atomic.Int32  // loops that accept, or have connections
	over      chan struct{} // closed when Serve returns
	draining  bool          // guarded by the server's mu
}

// ErrServerClosed is returned by [Server.Serve] after [Server.Shutdown] or [Server.Close]. It matches os.ErrClosed.
var ErrServerClosed error = closed.Error("penstock: loop: the server is closed")

// Serve takes over the listener, a *net.TCPListener or *net.UnixListener, and serves its connections until
// [Server.Close] or [Server.Shutdown]. Then it returns [ErrServerClosed]: at once, if one of the two was called
// before. The remaining connections are closed: the call in which a handler waits returns net.ErrClosed, and Serve
// waits for calls of [Conn.Go]. Any other error comes from the fields, the listener, or a loop. The error is never
// nil. When Serve returns, the listener is closed, and its path is removed as by package net. TCP connections have
// TCP_NODELAY and keepalive, as in package net.
func (s *Server) Serve(l net.Listener) error {
	if isNil(l) {
		return fmt.Errorf("penstock: loop: serve: %w: the listener is nil", ErrConfig)
	}
	defer l.Close()
	from, ok := l.(syscall.Conn)
	switch {
	case !ok:
		return fmt.Errorf("penstock: loop: serve: %w: the listener is a %T: use a *net.TCPListener or *net.UnixListener", ErrConfig, l)
	case s.Handle == nil:
		return fmt.Errorf("penstock: loop: serve: %w: Handle is nil", ErrConfig)
	case s.SlowTime < 0:
		return fmt.Errorf("penstock: loop: serve: %w: SlowTime is %v: write 0 or more", ErrConfig, s.SlowTime)
	}
	g, err := NewGroup(s.Loops, s.Config)
	if err != nil {
		return err
	}
	defer g.Close()
	one := s.newServe(g)
	if err := s.begin(one); err != nil {
		return err
	}
	defer s.end(one)
	path := unlinks(l)
	fd, err := Take(from)
	if err != nil {
		return err
	}
	one.close = sync.OnceFunc(func() {
		if path != "" {
			_ = syscall.Unlink(path)
		}
		closeSocket(fd)
	})
	defer one.close()
	setOptions(fd) // accepted connections inherit them
	for _, part := range one.parts {
		if part.listener, err = part.loop.Listen(fd, &ListenerConfig{Acceptor: part}); err != nil {
			return err
		}
	}
	if s.Stuck != nil {
		go s.watch(one)
	}
	err = g.Run()
	for _, part := range one.parts {
		part.closeAll()
	}
	return cmp.Or(err, ErrServerClosed)
}

func (s *Server) newServe(g *Group) *serve {
	one := &serve{group: g, over: make(chan struct{})}
	for _, l := range g.Loops() {
		part := &serving{Server: s, of: one, loop: l}
		part.body = part.run
		if s.Tick != nil {
			l.Arm(&part.tick, part, 0)
		}
		one.parts = append(one.parts, part)
	}
	one.accepting.Store(int32(len(one.parts)))
	one.filled.Store(int32(len(one.parts)))
	return one
}

// begin fails if the server already serves, or is closed. Otherwise the server now serves.
func (s *Server) begin(one *serve) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return ErrServerClosed
	case s.present != nil:
		return ErrRunning
	}
	s.present = one
	return nil
}

func (s *Server) end(one *serve) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.present = nil
	close(one.over)
}

// Close ends Serve, and every later call of Serve. Pending bytes are dropped, and their clients see a reset. It
// does not wait for Serve, and returns nil. It may be called by any goroutine at any time.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed = true; s.present != nil {
		s.present.group.Stop()
	}
	return nil
}

// Shutdown ends Serve without interrupting handlers, and every later call of Serve at once. It accepts the
// connections in the kernel's queue and no further ones. A connection ends when its handler returns and everything
// is written; it is closed at once if its handler has returned ErrIdle and no bytes of the client are left. A client
// that has sent a part of a request keeps its connection: let [Server.Drain] set a deadline. Shutdown returns nil
// when Serve has returned. If ctx ends before, it returns the cause, and handlers go on: [Server.Close] ends them.
//
// A handler may call it only within [Conn.Go]; Shutdown then also waits for that handler. Otherwise any
// goroutine may call it at any time.
func (s *Server) Shutdown(ctx context.Context) error {
	over := s.drain()
	if over == nil {
		return nil
	}
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// drain begins a shutdown on all loops. It returns a channel that is closed when Serve has returned, or nil if
// the server does not serve.
func (s *Server) drain() (over <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	one := s.present
	if one == nil {
		return nil
	}
	if !one.draining {
		one.draining = true
		for _, part := range one.parts {
			_ = part.loop.Post(part.drain) // fails if Serve is about to return
		}
	}
	return one.over
}

// queued is how many connections from the kernel's queue a shutdown accepts on each loop.
const queued = 1024

// drain begins a shutdown on a loop.
func (s *serving) drain() {
	s.listener.Empty(queued)
	_ = s.listener.Close() // the socket is closed next
	if s.of.accepting.Add(-1) == 0 {
		go s.of.close() // the file system of a path may not answer
	}
	s.draining = true
	var conns []*Conn
	for h := range s.loop.table.handlers() {
		if c, ok := h.(*Conn); ok {
			conns = append(conns, c)
		}
	}
	for _, c := range conns {
		c.drain()
	}
	s.drained()
}

// drain ends a connection that waits for its client, or calls Server.Drain for it.
func (c *Conn) drain() {
	switch {
	case c.closing:
	case c.group.Drain != nil:
		c.group.Drain(c)
	case c.idling && c.dry && c.in.len() == 0:
		_ = c.Close()
	}
}

// drained ends the server when no loop has a connection or accepts one.
func (s *serving) drained() {
	if s.draining && s.open == 0 && !s.empty {
		s.empty = true
		if s.of.filled.Add(-1) == 0 {
			s.of.group.Stop()
		}
	}
}
