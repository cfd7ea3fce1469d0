// Command responder serves the files of a directory by HTTP/1.1, on one event loop for each
// CPU. It shows how a server on package loop sends responses made of pieces:
//
//   - A response is a status line, fields, a date, perhaps a body: each is appended where
//     it is made, and a vecio.Writer sends all of them, and the responses to all requests
//     of a pipeline, by one system call.
//   - Small bodies are kept in memory and are never changed, so the writer may borrow them.
//     Large ones are read into slots of an arena, which the writer owns until they are
//     sent: then it gives them back itself.
//   - A client that does not read costs no more than the high mark: neither files nor
//     requests are read for it until the kernel has taken what is pending.
//
// Files are read on the loop, which is fine while they are in the page cache. Work that may
// wait for a disk belongs on a goroutine that reports back by Loop.Post.
package main

import (
	"log"
	"net"
	"os"
	"syscall"

	"github.com/penstock/penstock/arena"
	"github.com/penstock/penstock/loop"
)

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: responder LISTEN-ADDRESS DIRECTORY")
	}
	files, err := open(os.Args[2])
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
	slots, err := arena.New(&arena.Config{Locals: len(g.Loops())})
	if err == nil {
		err = serve(g, l.(*net.TCPListener), newServers(g, slots, files))
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
