package relay_test

import (
	"errors"
	"fmt"
	"net"
	"syscall"

	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/relay"
)

// A looper is a proxy on one event loop. It owns the loop's sessions.
type looper struct {
	loop   *loop.Loop
	driver *relay.Driver
}

// Ended implements [relay.Owner]. Both sockets are closed.
func (p *looper) Ended(_ *relay.Driven, res relay.Result, err error) {
	fmt.Println(res.Reason, res.AToB.Bytes(), res.BToA.Bytes(), err)
	p.loop.Stop()
}

// take takes a connection over, and has its events reported to h. After an error nothing of it is open.
func (p *looper) take(c *net.TCPConn, which uint8, h loop.Handler) (relay.Socket, error) {
	fd, err := loop.Take(c)
	if err != nil {
		return relay.Socket{}, errors.Join(err, c.Close())
	}
	id, err := p.loop.Add(fd, which, h)
	if err != nil {
		return relay.Socket{}, errors.Join(err, syscall.Close(fd))
	}
	return relay.Socket{FD: fd, ID: id, TCP: true}, nil
}

// drop closes a socket that no session has got.
func (p *looper) drop(s relay.Socket) error {
	p.loop.Drop(s.ID)
	return syscall.Close(s.FD)
}

// join takes two connections over, and closes both if it returns an error. It is called on the loop's goroutine, or
// before the loop runs.
func (p *looper) join(client, endpoint *net.TCPConn) error {
	session := new(relay.Driven) // in a program: a field of the client's own struct
	a, err := p.take(client, 0, session)
	if err != nil {
		return errors.Join(err, endpoint.Close())
	}
	b, err := p.take(endpoint, 1, session)
	if err != nil {
		return errors.Join(err, p.drop(a))
	}
	p.driver.Start(session, a, b, p)
	return nil
}

// A session on an event loop has no goroutine.
func ExampleDriver() {
	origin := echoServer()
	defer origin.Close()
	l, _ := net.Listen("tcp", "127.0.0.1:0")
	defer l.Close()

	r, err := relay.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer r.Close()
	p := new(looper)
	if p.loop, err = loop.New(nil); err != nil {
		fmt.Println(err)
		return
	}
	defer p.loop.Close()
	if p.driver, err = r.NewDriver(p.loop, nil); err != nil {
		fmt.Println(err)
		return
	}
	defer p.driver.Close()

	answer := make(chan string, 1)
	go func() { answer <- ask(l.Addr(), "hello") }()
	client, _ := l.Accept()
	endpoint, _ := net.Dial("tcp", origin.Addr().String())
	if err := p.join(client.(*net.TCPConn), endpoint.(*net.TCPConn)); err != nil {
		fmt.Println(err)
		return
	}
	if err := p.loop.Run(); err != nil {
		fmt.Println(err)
	}
	fmt.Println(<-answer)
	// Output:
	// eof 5 5 <nil>
	// HELLO
}
