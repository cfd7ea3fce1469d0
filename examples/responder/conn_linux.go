package main

import (
	"bufio"
	"bytes"
	"io"
	"log"
	"net/netip"
	"syscall"
	"time"

	"github.com/penstock/penstock/arena"
	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/vecio"
)

const (
	high = 256 << 10             // bytes that may be pending for a client
	most = arena.MaxSlot + 1<<10 // the most bytes that one step of fill appends
	idle = 30 * time.Second      // how long a client may keep us waiting
)

// A server belongs to one loop, and has the state that all of its connections share.
type server struct {
	loop  *loop.Loop
	slots *arena.Local
	files site
	conns map[*conn]bool

	buffer []byte // for reads of all connections
	head   bytes.Reader
	parser *bufio.Reader // reads head
	date   []byte
}

func newServers(g *loop.Group, slots *arena.Arena, files site) []*server {
	var servers []*server
	for i, l := range g.Loops() {
		servers = append(servers, &server{
			loop: l, slots: slots.Local(i), files: files, conns: map[*conn]bool{},
			buffer: make([]byte, maxHead), parser: bufio.NewReaderSize(nil, maxHead),
		})
	}
	return servers
}

func (s *server) close() {
	for c := range s.conns {
		c.drop()
	}
}

func (s *server) Paused(err error) { log.Println("accepting pauses:", err) }

func (s *server) Accepted(fd int, _ netip.AddrPort) {
	out, err := vecio.NewSocket(fd, &vecio.Config{High: high})
	if err != nil {
		log.Println(err)
		syscall.Close(fd)
		return
	}
	c := &conn{server: s, fd: fd, out: out, last: s.loop.Now()}
	c.id, _ = s.loop.Add(fd, 0, c) // fails only for lack of memory
	s.loop.Arm(&c.timer, c, idle)
	s.conns[c] = true
}

type conn struct {
	*server
	fd    int // owned
	id    loop.ID
	out   *vecio.Writer
	timer loop.Timer
	last  int64 // when something last happened, by Loop.Now

	in   []byte // requests not yet answered, the last perhaps incomplete
	dry  bool   // the socket has nothing to read until the next event
	rest rest   // of the response under way
	end  bool   // this response is the last one
	shut bool   // the last response is sent; further bytes are thrown away
}

// Ready answers the bytes that have come, and reads more only when the kernel has taken all answers: so it does
// not read from a client that does not read.
func (c *conn) Ready(_ uint8, events loop.Events) {
	c.dry = c.dry && events&^loop.Writable == 0
	if !c.shut {
		c.last = c.loop.Now()
	}
	for range 4 {
		more, err := c.fill()
		if err == nil {
			err = c.out.Flush()
		}
		if err == nil && !more {
			more, err = c.read()
		}
		switch {
		case err == vecio.ErrBlocked: // until the socket is writable
			return
		case err != nil: // usually the end of the stream
			c.drop()
			return
		case !more: // until the socket is readable
			return
		}
	}
	c.loop.Again(c.id) // after others have had their turn
}

// read reports whether something has come.
func (c *conn) read() (bool, error) {
	if c.end && !c.shut {
		// Closing now, with requests unread, would reset the connection, and the client would lose bytes that
		// it has not yet read. So the client closes first, or the timer does.
		c.shut = true
		_ = syscall.Shutdown(c.fd, syscall.SHUT_WR)
	}
	if c.dry {
		return false, nil
	}
	n, err := syscall.Read(c.fd, c.buffer)
	switch {
	case err == syscall.EAGAIN:
		return false, nil
	case err != nil:
		return false, err
	case n == 0:
		return false, io.EOF
	case !c.shut:
		c.in = append(c.in, c.buffer[:n]...)
	}
	c.dry = n < len(c.buffer)
	return true, nil
}

// Expired looks when the client was last active. That costs less than arming the timer each time.
func (c *conn) Expired(*loop.Timer) {
	if left := time.Duration(c.last-c.loop.Now()) + idle; left > 0 {
		c.loop.Arm(&c.timer, c, left)
		return
	}
	c.drop()
}

func (c *conn) drop() {
	_ = c.out.Close() // first, because it gives the slots back
	c.loop.Disarm(&c.timer)
	c.loop.Drop(c.id)
	syscall.Close(c.fd)
	delete(c.conns, c)
}
