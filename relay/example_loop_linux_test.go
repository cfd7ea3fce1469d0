package relay_test

import (
	"fmt"
	"net"

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

// join takes two connections over. It is called on the loop's goroutine, or before the loop runs.
func (p *looper) join(client, endpoint *net.TCPConn) error {
	session := new(relay.Driven) // in a program: a field of the client's own struct
	sockets := [2]relay.Socket{{TCP: true}, {TCP: true}}
	for i, c := range []*net.TCPConn{client, endpoint} {
		var err error
		if sockets[i].FD, err = loop.Take(c); err != nil {
			return err
		}
		if sockets[i].ID, err = p.loop.Add(sockets[i].FD, uint8(i), session); err != nil {
			return err
		}
	}
	p.driver.Start(session, sockets[0], sockets[1], p)
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
