// Command echo sends every byte back to its sender, on one event loop for each CPU.
package main

import (
	"bytes"
	"log"
	"net"
	"net/netip"
	"os"
	"syscall"

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

// serve takes the listener over, and has all loops accept from it.
func serve(g *loop.Group, from *net.TCPListener) error {
	fd, err := loop.Take(from)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	for _, l := range g.Loops() {
		s := &server{l, make([]byte, 64<<10)}
		if _, err := l.Listen(fd, &loop.ListenerConfig{Acceptor: s}); err != nil {
			return err
		}
	}
	return g.Run()
}

// A server is one loop's, with the buffer that all of its connections share.
type server struct {
	loop   *loop.Loop
	buffer []byte
}

func (s *server) Paused(err error) { log.Println("accepting pauses:", err) }

func (s *server) Accepted(fd int, _ netip.AddrPort) {
	syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1)
	c := &conn{server: s, fd: fd}
	c.id, _ = s.loop.Add(fd, 0, c) // it can fail for want of memory only
}

type conn struct {
	*server
	fd   int // owned
	id   loop.ID
	rest []byte // bytes that the client has not taken; before it has, nothing more is read
}

func (c *conn) Ready(uint8, loop.Events) {
	n, err := len(c.rest), error(nil)
	if n == 0 {
		n, err = syscall.Read(c.fd, c.buffer)
		c.rest = c.buffer[:max(n, 0)]
	}
	if n > 0 {
		n, err = syscall.Write(c.fd, c.rest)
		c.rest = bytes.Clone(c.rest[max(n, 0):]) // out of the shared buffer
	}
	if n > 0 {
		c.loop.Again(c.id) // after the others' turn
	} else if err != syscall.EAGAIN { // the end of the stream, or a failure
		c.loop.Drop(c.id)
		syscall.Close(c.fd)
	}
}
