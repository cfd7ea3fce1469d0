package loop_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/penstock/penstock/loop"
)

// A reader prints what comes, and stops the loop at the end of it.
type reader struct {
	loop *loop.Loop
	id   loop.ID
	fd   int // owned
}

func (r *reader) Ready(uint8, loop.Events) {
	b := make([]byte, 100)
	for {
		n, err := syscall.Read(r.fd, b)
		switch {
		case err == syscall.EAGAIN:
			return // the next edge will tell
		case n <= 0:
			r.loop.Drop(r.id)
			syscall.Close(r.fd)
			r.loop.Stop()
			return
		}
		fmt.Printf("%s\n", b[:n])
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// A connection of package net goes over to a loop.
func Example() {
	from, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	client, err := net.Dial("tcp", from.Addr().String())
	check(err)
	server, err := from.Accept()
	check(err)
	check(from.Close())

	l, err := loop.New(nil)
	check(err)
	defer l.Close()
	r := &reader{loop: l}
	r.fd, err = loop.Take(server.(*net.TCPConn))
	check(err)
	r.id, err = l.Add(r.fd, 0, r)
	check(err)

	go func() {
		_, err := io.WriteString(client, "hello")
		check(err)
		check(client.Close())
	}()
	check(l.Run())
	// Output: hello
}

// A printer prints when its timer has expired.
type printer struct {
	timer loop.Timer
	loop  *loop.Loop
	text  string
}

func (p *printer) Expired(*loop.Timer) {
	fmt.Println(p.text)
	p.loop.Stop()
}

func ExampleLoop_Arm() {
	l, err := loop.New(nil)
	check(err)
	defer l.Close()
	p := &printer{loop: l, text: "two milliseconds are over"}
	never := &printer{loop: l, text: "never"}
	l.Arm(&p.timer, p, 2*time.Millisecond)
	l.Arm(&never.timer, never, time.Millisecond)
	l.Disarm(&never.timer)
	check(l.Run())
	// Output: two milliseconds are over
}

// Other goroutines give a loop something to do.
func ExampleLoop_Post() {
	l, err := loop.New(nil)
	check(err)
	defer l.Close()
	go func() {
		_ = l.Post(func() { fmt.Println("on the loop's goroutine") })
		l.Stop()
	}()
	check(l.Run())
	fmt.Println(l.Stats().Events <= l.Stats().Turns)
	// Output:
	// on the loop's goroutine
	// true
}

// A greeter says hello to whom it accepts, and to whom it connects.
type greeter struct {
	loop *loop.Loop
	dial loop.Dial
}

func (g *greeter) Paused(err error) { fmt.Println("accepting pauses:", err) }

func (g *greeter) Accepted(fd int, _ netip.AddrPort) {
	_, err := syscall.Write(fd, []byte("hello"))
	check(err)
	check(syscall.Close(fd))
}

func (g *greeter) Connected(_ *loop.Dial, fd int, id loop.ID, _ loop.Events, err error) {
	check(err)
	g.loop.Hand(id, &reader{g.loop, id, fd})
}

// A loop accepts the connection that it makes itself.
func ExampleLoop_Listen() {
	from, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	to := loop.Address{AddrPort: from.Addr().(*net.TCPAddr).AddrPort()}
	fd, err := loop.Take(from.(*net.TCPListener))
	check(err)
	defer syscall.Close(fd)

	l, err := loop.New(nil)
	check(err)
	defer l.Close()
	g := &greeter{loop: l}
	listener, err := l.Listen(fd, &loop.ListenerConfig{Acceptor: g})
	check(err)
	defer listener.Close()
	l.Connect(&g.dial, 0, to, &loop.DialConfig{Timeout: time.Minute}, g)
	check(l.Run())
	// Output: hello
}

// A connection that was accepted by a loop goes on as one of package net.
func ExampleGive() {
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	check(err)
	a, err := loop.Give(pair[0])
	check(err)
	b, err := loop.Give(pair[1])
	check(err)
	go func() {
		_, err := io.WriteString(a, "hello")
		check(err)
		check(a.Close())
	}()
	text, err := io.ReadAll(b)
	check(err)
	check(b.Close())
	fmt.Printf("%s\n", text)
	// Output: hello
}

// A handler is written as one for a goroutine. Where it would wait, its loop serves others.
func ExampleServer() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	addr := l.Addr().String()
	s := &loop.Server{Handle: func(c *loop.Conn) error {
		for {
			n := bytes.IndexByte(c.Buffered(), '\n')
			if n < 0 {
				if err := c.More(); err != nil {
					return err
				}
				continue
			}
			line, err := c.Next(n + 1)
			if err != nil {
				return err
			}
			fmt.Fprintf(c, "hello %s", line)
		}
	}}
	over := make(chan error)
	go func() { over <- s.Serve(l) }()

	c, err := net.Dial("tcp", addr)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Fprint(c, "one\ntwo\n")
	lines := bufio.NewScanner(c)
	for range 2 {
		lines.Scan()
		fmt.Println(lines.Text())
	}
	c.Close()
	s.Close()
	fmt.Println(<-over)
	// Output:
	// hello one
	// hello two
	// penstock: loop: the server is closed
}
