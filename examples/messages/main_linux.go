// Command messages sends every message back with a checksum, on one event loop for each
// CPU. A message is a length (4 bytes, big endian) and as many bytes. An answer is a
// message of header, payload and trailer, for which others would make three writes or a copy:
//
//   - The header and the trailer (CRC-32C) are short, so the vecio.Writer copies them. The
//     payload is sent from the slot of an arena into which it was read, and the writer then
//     gives the slot back: the program only computes a sum of its bytes.
//   - The answer to a long message begins to leave while the message still comes, so no
//     message is ever held in memory as a whole.
//   - Each answer is a unit, and End says that it is complete. The policy decides what End
//     does, and needs only a timer for Due from the program. Try each policy: send messages
//     of various sizes in pipelines or one by one, and count calls and packets.
//   - A client that does not read costs no more than the high mark and a few slots, because
//     the program stops reading from it.
//
// There are no timeouts: examples/responder shows how.
package main

import (
	"log"
	"net"
	"net/netip"
	"os"
	"syscall"

	"github.com/penstock/penstock/arena"
	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/vecio"
)

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: messages LISTEN-ADDRESS latency|batch|adaptive")
	}
	policy, err := vecio.ParsePolicy(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	l, err := net.Listen("tcp", os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	g, err := loop.NewGroup(0, nil)
	if err != nil {
		log.Fatal(err)
	}
	slots, err := arena.New(&arena.Config{Locals: len(g.Loops()), Size: int64(len(g.Loops())) * budget})
	if err == nil {
		err = serve(g, l.(*net.TCPListener), newServers(g, slots, policy))
	}
	log.Fatal(err)
}

// serve takes over the listener, and lets all loops accept from it.
func serve(g *loop.Group, from *net.TCPListener, servers []*server) error {
	fd, err := loop.Take(from)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	for _, s := range servers {
		if _, err := s.loop.Listen(fd, &loop.ListenerConfig{Acceptor: s}); err != nil {
			return err
		}
		defer s.close()
	}
	return g.Run()
}

// A server belongs to one loop, and has the state that all of its connections share.
type server struct {
	loop   *loop.Loop
	slots  *arena.Local
	policy vecio.Policy
	conns  map[*conn]bool
	spare  []byte // a slot to read into, or nil
}

func newServers(g *loop.Group, a *arena.Arena, policy vecio.Policy) []*server {
	var servers []*server
	for i, l := range g.Loops() {
		servers = append(servers, &server{loop: l, slots: a.Local(i), policy: policy, conns: map[*conn]bool{}})
	}
	return servers
}

func (s *server) close() {
	for c := range s.conns {
		c.drop()
	}
	if s.spare != nil {
		s.slots.Release(s.spare)
	}
}

func (s *server) Paused(err error) { log.Println("accepting pauses:", err) }

func (s *server) Accepted(fd int, _ netip.AddrPort) {
	out, err := vecio.NewSocket(fd, &vecio.Config{CopyBelow: short, High: high, Policy: s.policy})
	if err != nil {
		log.Println(err)
		syscall.Close(fd)
		return
	}
	c := &conn{server: s, fd: fd, out: out}
	c.id, _ = s.loop.Add(fd, 0, c) // fails only for lack of memory
	s.conns[c] = true
}
