// Loop is an echo server on Penstock's loops, one for each processor. The first
// accepts, and they get one connection after the other.
package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"

	"github.com/penstock/penstock/bench/echo/part"
	"github.com/penstock/penstock/loop"
)

const (
	// bufferSize is the size of a read, in bytes, into one buffer for each loop.
	bufferSize = 64 << 10
	// turn is how often a connection is read before the others have their turn.
	turn = 16
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "loop:", err)
		os.Exit(1)
	}
}

func run() error {
	l, err := net.Listen("tcp", part.Address)
	if err != nil {
		return err
	}
	address := l.Addr().String()
	fd, err := loop.Take(l.(*net.TCPListener))
	if err != nil {
		return err
	}
	// Accepted connections inherit it.
	if err := syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1); err != nil {
		return os.NewSyscallError("setsockopt", err)
	}
	g, err := loop.NewGroup(0, nil)
	if err != nil {
		return err
	}
	s := new(server)
	for _, l := range g.Loops() {
		s.workers = append(s.workers, &worker{l, make([]byte, bufferSize)})
	}
	if _, err := g.Loops()[0].Listen(fd, &loop.ListenerConfig{Acceptor: s}); err != nil {
		return err
	}
	if err := part.Listening(address); err != nil {
		return err
	}
	go func() { part.Wait(); g.Stop() }()
	return errors.Join(g.Run(), g.Close()) // the end of the process closes the open descriptors
}

// worker is a loop and its buffer.
type worker struct {
	loop *loop.Loop
	buf  []byte
}

// server deals connections out to the workers.
type server struct {
	workers []*worker
	next    int
}

// Accepted implements loop.Acceptor.
func (s *server) Accepted(fd int, _ netip.AddrPort) {
	c := &conn{w: s.workers[s.next%len(s.workers)], fd: fd}
	s.next++
	if c.w == s.workers[0] {
		c.begin()
	} else if err := c.w.loop.Post(c.begin); err != nil {
		c.close()
	}
}

// Paused implements loop.Acceptor.
func (s *server) Paused(err error) { fmt.Fprintln(os.Stderr, "loop: accept4:", err) }

// conn is a connection.
type conn struct {
	w       *worker
	fd      int // owned
	id      loop.ID
	waiting []byte // to be sent
	ended   bool   // an event reported an end, which a read will meet
}

// begin is called on the worker's loop.
func (c *conn) begin() {
	var err error
	if c.id, err = c.w.loop.Add(c.fd, 0, c); err != nil {
		c.close()
	}
}

// Ready implements loop.Handler.
func (c *conn) Ready(_ uint8, events loop.Events) {
	c.ended = c.ended || events&(loop.PeerClosed|loop.HungUp|loop.Failed) != 0
	if len(c.waiting) > 0 && !c.send(c.waiting) {
		return
	}
	for range turn {
		n, err := syscall.Read(c.fd, c.w.buf)
		switch {
		case errors.Is(err, syscall.EAGAIN):
			return
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil || n == 0:
			c.close()
			return
		}
		if !c.send(c.w.buf[:n]) || n < len(c.w.buf) && !c.ended {
			return // there is no room, or nothing more
		}
	}
	c.w.loop.Again(c.id)
}

// send sends b, and reports whether all of it went; the rest waits.
func (c *conn) send(b []byte) bool {
	n, err := syscall.Write(c.fd, b)
	if err != nil && !errors.Is(err, syscall.EAGAIN) && !errors.Is(err, syscall.EINTR) {
		c.close()
		return false
	}
	c.waiting = append(c.waiting[:0], b[max(n, 0):]...)
	return len(c.waiting) == 0
}

// close ends the connection.
func (c *conn) close() {
	c.w.loop.Drop(c.id)
	_ = syscall.Close(c.fd)
}
