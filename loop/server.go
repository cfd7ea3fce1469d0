package loop

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"reflect"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/penstock/penstock/internal/closed"
)

// A serve is one call of [Server.Serve].
type serve struct {
	group     *Group
	parts     []*serving // one for each loop
	close     func()     // closes the listening socket, once
	accepting atomic.Int32
	filled    atomic.Int32  // loops that accept, or have connections
	over      chan struct{} // closed when it returns
	draining  bool          // guarded by the server's mu
}

// ErrServerClosed is returned by [Server.Serve] after [Server.Shutdown] or [Server.Close]. It matches os.ErrClosed.
var ErrServerClosed error = closed.Error("penstock: loop: the server is closed")

// Serve takes the listener over, a *net.TCPListener or *net.UnixListener, and serves its connections until
// [Server.Close] or [Server.Shutdown], after which it returns [ErrServerClosed], as it does if one of them was called
// before. Then the connections that there are still are
// closed: handlers that wait get net.ErrClosed from what they wait in, and those in [Conn.Go] are waited for. Any
// other error is that of the fields, of the listener, or of a loop. The error is never nil, and the listener is
// closed when Serve returns.
func (s *Server) Serve(l net.Listener) error {
	if v := reflect.ValueOf(l); v.Kind() == reflect.Pointer && v.IsNil() {
		l = nil // as one without a type
	}
	if l != nil {
		defer l.Close()
	}
	from, ok := l.(syscall.Conn)
	if !ok || s.Handle == nil || s.SlowTime < 0 {
		return fmt.Errorf("penstock: loop: serve: %w: write a listener of package net, Handle, and a SlowTime of 0 or more", ErrConfig)
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
	fd, err := Take(from)
	if err != nil {
		return err
	}
	one.close = sync.OnceFunc(func() { closeSocket(fd) })
	defer one.close()
	setNoDelay(fd) // accepted connections inherit it
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

// begin notes that the server serves, unless it does already, or is closed.
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

// Close makes Serve return, and every later Serve too. Bytes that were written and are still pending
// are dropped, and their clients see a reset. It does not wait for Serve, and returns nil. It may be called by any
// goroutine at any time.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed = true; s.present != nil {
		s.present.group.Stop()
	}
	return nil
}

// Shutdown makes Serve return without an interruption of handlers, and every later Serve at once: no connection is
// accepted any more once those in
// the kernel's queue are, and the others end with their handlers, when all is written for the client. Those whose
// handlers have returned ErrIdle are closed, see [Server.Drain]. It returns nil when Serve has returned. If ctx ends
// before that it returns the cause, and the rest goes on: [Server.Close] ends it.
//
// A handler must not call it but within [Conn.Go], where it waits for that handler, too. Otherwise it may be called
// by any goroutine at any time.
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

// drain has all loops begin with a shutdown, and returns what is closed when Serve has returned; nil if it does
// not serve.
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
			_ = part.loop.Post(part.drain) // it fails if Serve is about to return
		}
	}
	return one.over
}

// queued is how many connections of the kernel's queue a shutdown accepts on each loop.
const queued = 1024

// drain begins a shutdown on a loop.
func (s *serving) drain() {
	s.listener.Empty(queued)
	_ = s.listener.Close() // the socket is closed next
	if s.of.accepting.Add(-1) == 0 {
		s.of.close()
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

// drain lets a connection end, if it may.
func (c *Conn) drain() {
	switch {
	case c.closing:
	case c.group.Drain != nil:
		c.group.Drain(c)
	case c.idling && c.dry && c.in.len() == 0:
		_ = c.Close()
	}
}

// drained ends the server if no loop has connections any more, and none is accepted.
func (s *serving) drained() {
	if s.draining && s.open == 0 && !s.empty {
		s.empty = true
		if s.of.filled.Add(-1) == 0 {
			s.of.group.Stop()
		}
	}
}
