// Command echo sends every byte back to its sender, on one event loop for each CPU. Bytes that a client has not
// taken wait in a slot of an arena. An arena.Ring knows how many of them are sent, so the rest is neither moved
// nor allocated.
package main

import (
	"io"
	"log"
	"net"
	"net/netip"
	"os"
	"syscall"

	"github.com/penstock/penstock/arena"
	"github.com/penstock/penstock/loop"
)

func main() {
	l, err := net.Listen("tcp", os.Args[1]) // such as 127.0.0.1:7007
	if err != nil {
		log.Fatal(err)
	}
	g, err := loop.NewGroup(0, nil)
	if err == nil {
		err = serve(g, l.(*net.TCPListener))
	}
	log.Fatal(err)
}

// serve takes over the listener, and lets all loops accept from it.
func serve(g *loop.Group, from *net.TCPListener) error {
	fd, err := loop.Take(from)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	slots, err := arena.New(&arena.Config{Locals: len(g.Loops())})
	if err != nil {
		return err
	}
	defer slots.Close()
	for i, l := range g.Loops() {
		s := &server{l, slots.Local(i), make([]byte, arena.MaxSlot)}
		if _, err := l.Listen(fd, &loop.ListenerConfig{Acceptor: s}); err != nil {
			return err
		}
	}
	return g.Run()
}

// A server belongs to one loop, and has the buffer that all of its connections share.
type server struct {
	loop   *loop.Loop
	slots  *arena.Local
	buffer []byte
}

func (s *server) Paused(err error) { log.Println("accepting pauses:", err) }

func (s *server) Accepted(fd int, _ netip.AddrPort) {
	syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1)
	c := &conn{server: s, fd: fd}
	c.id, _ = s.loop.Add(fd, 0, c) // fails only for lack of memory
}

type conn struct {
	*server
	fd   int // owned
	id   loop.ID
	slot arena.Handle // leased while rest has bytes
	rest arena.Ring   // bytes that the client has not taken; until then nothing more is read
}

func (c *conn) Ready(uint8, loop.Events) {
	step := c.echo
	if c.rest.Len() > 0 {
		step = c.send
	}
	switch err := step(); err {
	case nil:
		c.loop.Again(c.id) // after others have had their turn
	case syscall.EAGAIN:
	default: // the end of the stream, or a failure
		c.drop()
	}
}

// echo reads, and keeps what the client does not take at once.
func (c *conn) echo() error {
	n, err := syscall.Read(c.fd, c.buffer)
	if err != nil {
		return err
	}
	if n == 0 {
		return io.EOF
	}
	sent, err := syscall.Write(c.fd, c.buffer[:n])
	sent = max(sent, 0)
	if sent == n || err != nil && err != syscall.EAGAIN {
		return err
	}
	if c.slot, err = c.slots.Get(n-sent, arena.Residue); err != nil {
		return err // no memory for a client that does not read
	}
	slot, err := c.slots.Bytes(c.slot)
	c.rest = arena.Ring{}
	c.rest.Write(slot, c.buffer[sent:n])
	return err
}

// send sends the rest, or part of it.
func (c *conn) send() error {
	slot, err := c.slots.Bytes(c.slot)
	if err != nil {
		return err
	}
	first, _ := c.rest.Peek(slot) // the rest was written from the beginning of the slot
	n, err := syscall.Write(c.fd, first)
	if err != nil {
		return err
	}
	if c.rest.Discard(n); c.rest.Len() == 0 {
		return c.slots.Put(c.slot)
	}
	return nil
}

func (c *conn) drop() {
	if c.rest.Len() > 0 {
		_ = c.slots.Put(c.slot) // cannot fail: the slot is leased
	}
	c.loop.Drop(c.id)
	syscall.Close(c.fd)
}
