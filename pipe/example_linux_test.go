package pipe_test

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"syscall"

	"github.com/penstock/penstock/pipe"
)

// A pipe is leased when the source is readable and goes back when the last byte
// has left it. The runtime's poller does the waiting.
func ExamplePool() {
	pl, err := pipe.NewPool(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer pl.Close()

	client, src := connect()
	dst, server := connect()
	for _, c := range []net.Conn{client, src, dst, server} {
		defer c.Close()
	}
	go func() {
		io.WriteString(client, "moved without a copy")
		client.CloseWrite()
	}()

	for more := true; more; {
		if more, err = moveSome(pl, dst, src); err != nil {
			log.Fatal(err)
		}
	}
	dst.CloseWrite()
	b, err := io.ReadAll(server)
	fmt.Println(string(b), err)

	s := pl.Stats()
	fmt.Println("made", s.Made, "leased", s.Leased)
	// Output:
	// moved without a copy <nil>
	// made 1 leased 0
}

// moveSome waits until src is readable, fills a leased pipe from it and drains
// that to dst. It reports whether there is more to come.
func moveSome(pl *pipe.Pool, dst, src *net.TCPConn) (more bool, err error) {
	in, err := src.SyscallConn()
	if err != nil {
		return false, err
	}
	out, err := dst.SyscallConn()
	if err != nil {
		return false, err
	}
	var p *pipe.Pipe
	var n int
	var ferr error
	err = in.Read(func(fd uintptr) bool {
		if p, ferr = pl.Get(0); ferr != nil {
			return true // copy instead, if it is ErrBudget or ErrNotSupported
		}
		n, ferr = p.Fill(int(fd), p.Size())
		if ferr != syscall.EAGAIN {
			return true
		}
		pl.Put(p) // nothing is held while waiting
		p = nil
		return false
	})
	if p != nil {
		defer pl.Put(p) // closed, if it still holds bytes
	}
	if err = errors.Join(err, ferr); err != nil {
		return false, err
	}
	var derr error
	err = out.Write(func(fd uintptr) bool {
		for derr = nil; p.Len() > 0 && derr == nil; {
			_, derr = p.Drain(int(fd), p.Len())
		}
		return derr != syscall.EAGAIN
	})
	return n > 0, errors.Join(err, derr)
}

// connect returns both ends of a connection.
func connect() (a, b *net.TCPConn) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		log.Fatal(err)
	}
	s, err := l.Accept()
	if err != nil {
		log.Fatal(err)
	}
	return c.(*net.TCPConn), s.(*net.TCPConn)
}
