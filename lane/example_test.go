package lane_test

import (
	"log"
	"net"
	"time"

	"github.com/penstock/penstock/lane"
)

// A proxy lets its sessions leave user space when they can.
func Example() {
	l, err := lane.Open(lane.Config{Devices: []string{"eth0", "lo"}})
	if err != nil {
		log.Fatal(err) // an *lane.Unavailable names what is missing
	}
	defer l.Close()
	at, err := net.Listen("tcp", ":8080")
	if err != nil {
		log.Fatal(err)
	}
	for {
		client, err := at.Accept()
		if err != nil { // for example no free descriptor (EMFILE), which passes
			log.Print(err)
			time.Sleep(100 * time.Millisecond)
			continue
		}
		server, err := net.Dial("tcp", "192.0.2.7:80")
		if err != nil {
			log.Print(err)
			client.Close()
			continue
		}
		ended := func(r lane.Result) { log.Print(r.Bytes, r.Err) }
		if _, err := l.Join(client.(*net.TCPConn), server.(*net.TCPConn), ended); err != nil {
			log.Print(err)
			client.Close()
			server.Close()
		}
	}
}

// Two connections are joined, and their bytes are counted.
func ExampleLane_Join() {
	count := func(l *lane.Lane, client, server *net.TCPConn) ([2]uint64, error) {
		s, err := l.Join(client, server, nil) // takes both connections
		if err != nil {
			return [2]uint64{}, err
		}
		s.Wait()
		return s.Bytes(), nil
	}
	_ = count
}

// A poster is the Owner of one session of an event loop.
type poster struct {
	run     func(func()) // on the loop
	session lane.Session
	a, b    int
}

func (p *poster) Ready(*lane.Session) { p.run(func() { p.session.Arm() }) }

func (p *poster) Left(*lane.Session) { p.run(p.readable) }

func (p *poster) Ended(_ *lane.Session, r lane.Result) {
	p.run(func() {
		_ = p.session.Leave(p.a, p.b) // returns an error if they were given away already
		log.Print(r.Bytes, r.Err)
	})
}

// readable is called by the loop when a socket is readable.
func (p *poster) readable() {
	if !p.session.Disarm() {
		_ = p.session.Leave(p.a, p.b)
		return
	}
	// bytes are moved here
	p.session.Arm()
}

// An event loop lets its session leave whenever the session is at rest.
func ExampleLane_Register() {
	register := func(l *lane.Lane, p *poster) {
		p.run(func() {
			if err := l.Register(&p.session, p.a, p.b, p); err != nil {
				log.Print("it stays: ", err)
			}
		})
	}
	_ = register
}

// An owner makes a gap in a session that has none. It shuts b, the source, which then sends only the rest of
// what it has begun to send. The owner goes on relaying, and arms the session when it holds no bytes. Once
// everything has arrived it opens b, and the next packet of b takes the session.
func ExampleSession_Shut() {
	makeGap := func(p *poster, after func(time.Duration, func()), holds func() bool, acknowledged func(fd int) bool) {
		if !p.session.Shut(false, true) {
			return // it has left, or has ended
		}
		began := time.Now()
		var look func()
		look = func() {
			if !p.session.Disarm() { // it has left by itself, and its endpoints see each other's windows
				_ = p.session.Open(p.a, p.b)
				_ = p.session.Leave(p.a, p.b)
				return
			}
			armed := !holds() && p.session.Arm() // otherwise readable arms it
			late := time.Since(began) > 2*time.Second
			if !late && !(armed && acknowledged(p.a) && acknowledged(p.b)) { // SIOCOUTQ of each is 0: see tcp(7)
				after(time.Millisecond, look)
				return
			}
			_ = p.session.Open(p.a, p.b) // after an error b learns the window by a probe of its own
		}
		look()
	}
	_ = makeGap
}
