package claims

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/penstock/penstock/arena"
	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/relay"
)

// No process may have two million sockets, so sessions share some: session i has pair i%shared of unix sockets, and reads and writes
// them by real system calls. Everything else is Penstock's own: the sessions, in slabs as of the program, and a loop's table and timers.
const (
	shared      = 64
	messageSize = 1 << 10
	// passed is how many messages are measured, of sessions chosen at random.
	passed = 100_000
)

// A link is the sockets of a session: near ends belong to the session, far ends to its client and server.
type link struct{ nearA, farA, nearB, farB int } // owned

// links are shared by all sessions.
type links [shared]link

func newLinks() (*links, error) {
	ks := new(links)
	for i := range ks {
		var errA, errB error
		ks[i].nearA, ks[i].farA, errA = sys.SocketPair()
		ks[i].nearB, ks[i].farB, errB = sys.SocketPair()
		if err := errors.Join(errA, errB); err != nil {
			return nil, os.NewSyscallError("socketpair", err) // the process ends by it
		}
	}
	return ks, nil
}

func (ks *links) close() {
	for _, k := range ks {
		for _, fd := range []int{k.nearA, k.farA, k.nearB, k.farB} {
			sys.Close(fd)
		}
	}
}

// A population is many sessions.
type population interface {
	start() error // all of them
	// pass passes a message by session i, and returns how long the proxy's side of it took.
	pass(i int) (time.Duration, error)
	close()
}

// crowded returns the memory of n sessions, and the time of messages by them.
func crowded(ctx context.Context, name string, make func(n int) (population, error), n int) (r Result, err error) {
	all, err := make(n)
	if err != nil {
		return nil, err
	}
	defer all.close()
	size := grown(func() { err = all.start() }) / float64(n)
	if err != nil {
		return nil, err
	}
	var times report.Sample
	random := rand.New(rand.NewPCG(1, uint64(n)))
	for range passed {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		took, err := all.pass(random.IntN(n))
		if err != nil {
			return nil, err
		}
		times = append(times, took.Seconds())
	}
	return of(name,
		Figure{Name: "sessions", Unit: Exact, Value: float64(n)}, Figure{Name: "memory of each", Unit: Bytes, Value: size},
		spread("a message", Seconds, times)), nil
}

// A crowd is sessions on one loop, which the measuring goroutine drives.
type crowd struct {
	*links
	loop    *loop.Loop
	arena   *arena.Arena
	driver  *relay.Driver
	slabs   [][]seat
	ids     []loop.ID // of each session's first socket
	ended   error
	b, want [messageSize]byte
}

// slabSize is how many sessions are allocated at a time.
const slabSize = 200

// A seat is a session with what the program has beside it: pointers, descriptors and a state.
type seat struct {
	session relay.Driven
	crowd   *crowd
	_       [3]*seat
	_       [16]byte
}

// Ended implements relay.Owner: none may end.
func (s *seat) Ended(_ *relay.Driven, res relay.Result, err error) {
	s.crowd.ended = fmt.Errorf("a session ended: %v, %w", res.Reason, err)
}

func newCrowd(n int) (population, error) {
	c := &crowd{ids: make([]loop.ID, 0, n)}
	ks, errLinks := newLinks()
	l, errLoop := loop.New(&loop.Config{Now: func() int64 { return 1 }}) // no timeout comes
	r, errRelay := relay.New(&relay.Config{IdleTimeout: time.Hour})
	a, errArena := arena.New(&arena.Config{Locals: 1})
	if err := errors.Join(errLinks, errLoop, errRelay, errArena); err != nil {
		return nil, err
	}
	c.links, c.loop, c.arena = ks, l, a
	var err error
	c.driver, err = r.NewDriver(l, a.Local(0))
	return c, err
}

func (c *crowd) close() {
	_ = c.loop.Close()
	c.links.close() // sessions that share descriptors do not end: all of them are forgotten together
}

func (c *crowd) start() error {
	for i := range cap(c.ids) {
		if i%slabSize == 0 {
			c.slabs = append(c.slabs, make([]seat, slabSize))
		}
		s, k := c.seat(i), &c.links[i%shared]
		s.crowd = c
		a, err := c.register(k.nearA, 0, s)
		if err != nil {
			return err
		}
		b, err := c.register(k.nearB, 1, s)
		if err != nil {
			return err
		}
		c.ids = append(c.ids, a.ID)
		c.driver.Start(&s.session, a, b, s)
	}
	return c.ended
}

func (c *crowd) seat(i int) *seat { return &c.slabs[i/slabSize][i%slabSize] }

// register takes a slot of the loop's table for a socket that shares its descriptor with others, which epoll could therefore not tell
// apart: by an eventfd that is closed at once, and so has no events.
func (c *crowd) register(fd int, which uint8, s *seat) (relay.Socket, error) {
	event, err := sys.Eventfd()
	if err != nil {
		return relay.Socket{}, os.NewSyscallError("eventfd2", err)
	}
	defer sys.Close(event)
	id, err := c.loop.Add(event, which, &s.session)
	return relay.Socket{FD: fd, ID: id, Events: loop.Writable}, err
}

// pass implements population: the registration is found as an event finds it, and the session reads and writes.
func (c *crowd) pass(i int) (time.Duration, error) {
	k, session := &c.links[i%shared], &c.seat(i).session
	binary.LittleEndian.PutUint64(c.want[:], uint64(i)+1) // a message that no other session has
	_, sent := sys.Send(k.farA, c.want[:], sys.MSG_DONTWAIT|sys.MSG_NOSIGNAL)
	begun := time.Now()
	c.loop.Hand(c.ids[i], session)
	session.Ready(0, loop.Readable)
	took := time.Since(begun)
	n, err := sys.Recv(k.farB, c.b[:], sys.MSG_DONTWAIT)
	if err = errors.Join(sent, err, c.ended); err == nil && !bytes.Equal(c.b[:n], c.want[:]) {
		err = fmt.Errorf("session %d: %d bytes of another message", i, n)
	}
	return took, err
}

// pumps are sessions with two goroutines each, one for each way, that wait for a channel and have a buffer of io.Copy's size.
type pumps struct {
	*links
	wake  []chan struct{} // of the way from the client
	back  chan struct{}   // the way to it waits for its end
	done  chan error
	ended sync.WaitGroup
	b     [messageSize]byte
}

func newPumps(n int) (population, error) {
	ks, err := newLinks()
	return &pumps{links: ks, wake: make([]chan struct{}, n), back: make(chan struct{}), done: make(chan error)}, err
}

func (p *pumps) start() error {
	for i := range p.wake {
		p.wake[i] = make(chan struct{})
		k := &p.links[i%shared]
		p.ended.Go(func() { p.pump(p.wake[i], k.nearA, k.nearB) })
		p.ended.Go(func() { p.pump(p.back, k.nearB, k.nearA) })
	}
	for range 2 * len(p.wake) {
		<-p.done
	}
	return nil
}

func (p *pumps) pump(wake chan struct{}, from, to int) {
	b := bytes.Repeat([]byte{1}, 32<<10) // it has been full once
	p.done <- nil
	for range wake {
		n, err := sys.Recv(from, b, sys.MSG_DONTWAIT)
		if err == nil {
			_, err = sys.Send(to, b[:n], sys.MSG_DONTWAIT|sys.MSG_NOSIGNAL)
		}
		p.done <- err
	}
	runtime.KeepAlive(b)
}

func (p *pumps) pass(i int) (time.Duration, error) {
	k := &p.links[i%shared]
	_, sent := sys.Send(k.farA, p.b[:], sys.MSG_DONTWAIT|sys.MSG_NOSIGNAL)
	begun := time.Now()
	p.wake[i] <- struct{}{}
	err := <-p.done
	took := time.Since(begun)
	_, got := sys.Recv(k.farB, p.b[:], sys.MSG_DONTWAIT)
	return took, errors.Join(sent, err, got)
}

func (p *pumps) close() {
	close(p.back)
	for _, wake := range p.wake {
		if wake != nil {
			close(wake)
		}
	}
	p.ended.Wait()
	p.links.close()
}
