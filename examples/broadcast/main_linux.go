// Command broadcast sends the bytes of each client to all clients. It drops a client that falls 64 KiB behind.
package main

import (
	"log"
	"net"
	"net/netip"
	"os"
	"syscall"

	"github.com/penstock/penstock/loop"
)

func main() {
	from, err := net.Listen("tcp", os.Args[1]) // such as 127.0.0.1:7008
	if err != nil {
		log.Fatal(err)
	}
	l, err := loop.New(nil)
	if err == nil {
		err = serve(l, from.(*net.TCPListener))
	}
	log.Fatal(err)
}

func serve(l *loop.Loop, from *net.TCPListener) error {
	fd, err := loop.Take(from)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	if _, err := l.Listen(fd, &loop.ListenerConfig{Acceptor: &room{l, map[*member]bool{}}}); err != nil {
		return err
	}
	return l.Run()
}

type room struct {
	*loop.Loop
	members map[*member]bool // without a lock, because it belongs to the loop's goroutine
}

func (r *room) Paused(err error) { log.Println("accepting pauses:", err) }

func (r *room) Accepted(fd int, _ netip.AddrPort) {
	syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1)
	m := &member{room: r, fd: fd}
	m.id, _ = r.Add(fd, 0, m) // fails only for lack of memory
	r.members[m] = true
}

type member struct {
	*room
	fd      int // owned
	id      loop.ID
	waiting []byte // bytes that wait for room in the socket
}

func (m *member) Ready(uint8, loop.Events) {
	b := make([]byte, 4<<10)
	n, err := syscall.Read(m.fd, b)
	m.send(nil, n > 0 || err == syscall.EAGAIN)
	if n > 0 {
		for other := range m.members {
			other.send(b[:n], true)
		}
		m.Again(m.id) // after others have had their turn
	}
}

func (m *member) send(b []byte, stay bool) {
	m.waiting = append(m.waiting, b...)
	n, err := syscall.Write(m.fd, m.waiting)
	m.waiting = m.waiting[max(n, 0):]
	if !stay || len(m.waiting) > 64<<10 || err != nil && err != syscall.EAGAIN {
		delete(m.members, m)
		m.Drop(m.id)
		syscall.Close(m.fd)
	}
}
