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
	most = arena.MaxSlot + 1<<10 // bytes that one step of fill appends at most
	idle = 30 * time.Second      // how long a client may keep us waiting
)

// A server is one loop's, with the state that all of its connections share.
type server struct {
	loop  *loop.Loop
	slots *arena.Local
	files site
	conns map[*conn]bool

	buffer []byte // bytes that are read, before their connection is known
	head   bytes.Reader
	parser *bufio.Reader // of head
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
	c.id, _ = s.loop.Add(fd, 0, c) // it can fail for lack of memory only
	s.loop.Arm(&c.timer, c, idle)
	s.conns[c] = true
}

type conn struct {
	*server
	fd    int // owned
	id    loop.ID
	out   *vecio.Writer
	timer loop.Timer
	last  int64 // when something happened, by Loop.Now

	in   []byte // requests, or the beginning of one, that are not answered
	dry  bool   // the socket has nothing more to read until it says so
	rest rest   // the rest of the response that is under way
	end  bool   // it is the last one
	shut bool   // which is sent: bytes that still come are thrown away
}

// Ready answers the bytes that have come, and reads the next ones only when the kernel has
// taken all of the answers: a client that does not read is not read from either.
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
		case err == vecio.ErrBlocked: // until it is writable
			return
		case err != nil: // the end of the stream, most often
			c.drop()
			return
		case !more: // until it is readable
			return
		}
	}
	c.loop.Again(c.id) // after the others' turn
}

// read reports whether something has come.
func (c *conn) read() (bool, error) {
	if c.end && !c.shut {
		// To close now, with requests unread, would reset the connection, and with it the
		// bytes that the client has not yet read. It closes first, or the timer does.
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

// Expired looks when the client was last heard of; to arm the timer each time would
// cost more.
func (c *conn) Expired(*loop.Timer) {
	if left := time.Duration(c.last-c.loop.Now()) + idle; left > 0 {
		c.loop.Arm(&c.timer, c, left)
		return
	}
	c.drop()
}

func (c *conn) drop() {
	_ = c.out.Close() // first: it gives the slots back
	c.loop.Disarm(&c.timer)
	c.loop.Drop(c.id)
	syscall.Close(c.fd)
	delete(c.conns, c)
}
