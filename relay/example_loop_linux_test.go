package relay_test

import (
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/relay"
	"github.com/penstock/penstock/relay/driver"
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

// onLoop runs a loop for one client, which asks a server that answers in capitals.
func onLoop(line string, start func(p *looper, client, endpoint *net.TCPConn) error) {
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
	go func() { answer <- ask(l.Addr(), line) }()
	client, _ := l.Accept()
	endpoint, _ := net.Dial("tcp", origin.Addr().String())
	if err := start(p, client.(*net.TCPConn), endpoint.(*net.TCPConn)); err != nil {
		fmt.Println(err)
		return
	}
	if err := p.loop.Run(); err != nil {
		fmt.Println(err)
	}
	fmt.Println(<-answer)
}

// A session on an event loop has no goroutine.
func ExampleDriver() {
	onLoop("hello", func(p *looper, client, endpoint *net.TCPConn) error { return p.join(client, endpoint) })
	// Output:
	// eof 5 5 <nil>
	// HELLO
}

// A redactor is a [driver.Transform] that replaces digits. It does so at once, so it is never busy; one that works on other
// goroutines calls wake when it is done.
type redactor struct{ out []byte }

func (*redactor) Begin(wake func()) {}
func (*redactor) Most() int         { return 64 << 10 }

func (r *redactor) Put(b []byte) {
	for _, c := range b {
		if '0' <= c && c <= '9' {
			c = '*'
		}
		r.out = append(r.out, c)
	}
}

func (r *redactor) Take(b []byte) (n int, busy bool, err error) {
	n = copy(b, r.out)
	r.out = r.out[n:]
	return n, false, nil
}

func (r *redactor) Held() int { return len(r.out) }
func (*redactor) End()        {}
func (*redactor) Close()      {}

// A mirroredClient is a session whose client's bytes are redacted, and sent to a second server as well. It is the
// owner of the session, of the mirror, and of the connect to the shadow.
type mirroredClient struct {
	session relay.Driven
	mirror  relay.Mirror
	dial    loop.Dial
	on      *looper
	open    int // the session and the mirror
}

// start is called on the loop's goroutine, or before the loop runs.
func (c *mirroredClient) start(client, endpoint *net.TCPConn, shadow loop.Address) error {
	a, err := c.on.take(client, 0, &c.session)
	if err != nil {
		return errors.Join(err, endpoint.Close())
	}
	b, err := c.on.take(endpoint, 1, &c.session)
	if err != nil {
		return errors.Join(err, c.on.drop(a))
	}
	c.open = 2
	c.on.driver.StartMirror(&c.mirror, time.Second, c)
	a.Mirror, a.Transform = &c.mirror, new(redactor)
	c.on.loop.Connect(&c.dial, 0, shadow, nil, c)
	c.on.driver.Start(&c.session, a, b, c) // which owns both sockets from here on
	return nil
}

// Connected implements [loop.Connector]: the shadow is there, or not.
func (c *mirroredClient) Connected(_ *loop.Dial, fd int, id loop.ID, events loop.Events, err error) {
	if err != nil {
		c.mirror.Refused(err)
		return
	}
	c.mirror.Connected(relay.Socket{FD: fd, ID: id, Events: events, TCP: true})
}

// Ended implements [relay.Owner].
func (c *mirroredClient) Ended(_ *relay.Driven, res relay.Result, err error) {
	fmt.Println("session:", res.Reason, res.AToB.Bytes(), err)
	c.over()
}

// MirrorEnded implements [relay.MirrorOwner]. It may come before Ended or after it.
func (c *mirroredClient) MirrorEnded(_ *relay.Mirror, res driver.MirrorResult) {
	fmt.Println("mirror:", res.Reason, res.Teed+res.Copied, res.Err)
	c.over()
}

func (c *mirroredClient) over() {
	if c.open--; c.open == 0 {
		c.on.loop.Stop()
	}
}

// A mirror has a second server sent what the client sends, here as a Transform has changed it.
func ExampleMirror() {
	shadow := echoServer()
	defer shadow.Close()
	to := loop.Address{AddrPort: shadow.Addr().(*net.TCPAddr).AddrPort()}
	onLoop("my pin is 1234", func(p *looper, client, endpoint *net.TCPConn) error {
		return (&mirroredClient{on: p}).start(client, endpoint, to)
	})
	// Unordered output:
	// session: eof 14 <nil>
	// mirror: complete 14 <nil>
	// MY PIN IS ****
}
