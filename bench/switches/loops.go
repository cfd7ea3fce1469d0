package switches

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/loop"
)

const flags = sys.MSG_DONTWAIT | sys.MSG_NOSIGNAL

// serveLoops serves all connections on as many of Penstock's loops as there are
// CPUs to use. The first accepts, and they get one connection after the other.
func serveLoops(ctx context.Context, l *net.TCPListener, open *census) error {
	g, err := loop.NewGroup(0, nil)
	if err != nil {
		_ = l.Close()
		return err
	}
	defer context.AfterFunc(ctx, g.Stop)()
	listening, err := loop.Take(l)
	if err != nil {
		return errors.Join(err, l.Close(), g.Close())
	}
	s := &looped{open: open, all: make(map[*echoed]struct{})}
	for _, l := range g.Loops() {
		s.loops = append(s.loops, &echoLoop{loop: l, server: s, buf: make([]byte, bufferSize)})
	}
	_, err = s.loops[0].loop.Listen(listening, &loop.ListenerConfig{Acceptor: s})
	if err == nil {
		err = g.Run()
	}
	s.close()
	_ = sys.Close(listening)
	return errors.Join(err, s.failed, g.Close())
}

// looped is the server.
type looped struct {
	open   *census
	loops  []*echoLoop
	next   int // of loops
	failed error

	mu  sync.Mutex
	all map[*echoed]struct{} // that are open, owned
}

// Accepted implements loop.Acceptor.
func (s *looped) Accepted(fd int, _ netip.AddrPort) {
	on := s.loops[s.next%len(s.loops)]
	s.next++
	c := &echoed{on: on, fd: fd, ticket: s.open.enter(func() {})} // the end of the loops ends it
	s.mu.Lock()
	s.all[c] = struct{}{}
	s.mu.Unlock()
	if on == s.loops[0] {
		c.begin()
	} else if err := on.loop.Post(c.begin); err != nil {
		c.close()
	}
}

// Paused implements loop.Acceptor. The limits were looked at before.
func (s *looped) Paused(err error) {
	s.failed = fmt.Errorf("accept4: %w", err)
	for _, on := range s.loops {
		on.loop.Stop()
	}
}

// close closes the connections that are still open, once no loop runs.
func (s *looped) close() {
	for c := range s.all {
		c.close()
	}
}

// echoLoop is a loop and the data that all of its connections share.
type echoLoop struct {
	loop   *loop.Loop
	server *looped
	buf    []byte
}

// echoed is a connection.
type echoed struct {
	on      *echoLoop
	fd      int // owned
	id      loop.ID
	ticket  int
	waiting []byte // to be sent
	ended   bool   // an event reported an end, which a read will meet
}

// begin is called on its loop's goroutine.
func (c *echoed) begin() {
	var err error
	if c.id, err = c.on.loop.Add(c.fd, 0, c); err != nil {
		c.close()
	}
}

// Ready implements loop.Handler. It reads once, as package loop requires: the rest is for
// another turn.
func (c *echoed) Ready(_ uint8, events loop.Events) {
	c.ended = c.ended || events&(loop.PeerClosed|loop.HungUp|loop.Failed) != 0
	if len(c.waiting) > 0 && !c.send(c.waiting) {
		return
	}
	n, err := sys.Recv(c.fd, c.on.buf, flags)
	switch {
	case errors.Is(err, syscall.EAGAIN):
	case errors.Is(err, syscall.EINTR):
		c.on.loop.Again(c.id)
	case err != nil || n == 0:
		c.close()
	case c.send(c.on.buf[:n]) && (n == len(c.on.buf) || c.ended):
		c.on.loop.Again(c.id) // there may be more, after the others' turn
	}
}

// send sends b, and reports whether all of it went; the rest waits.
func (c *echoed) send(b []byte) bool {
	n, err := sys.Send(c.fd, b, flags)
	if err != nil && !errors.Is(err, syscall.EAGAIN) && !errors.Is(err, syscall.EINTR) {
		c.close()
		return false
	}
	c.on.server.open.echoed.Add(int64(n))
	c.waiting = append(c.waiting[:0], b[n:]...)
	return len(c.waiting) == 0
}

// close ends the connection.
func (c *echoed) close() {
	s := c.on.server
	c.on.loop.Drop(c.id)
	s.mu.Lock()
	delete(s.all, c)
	s.mu.Unlock()
	s.open.leave(c.ticket)
	_ = sys.Close(c.fd)
}
