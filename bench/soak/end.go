package soak

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/penstock/penstock/bench/traffic"
	"github.com/penstock/penstock/internal/sys"
)

// sight is how receiving, or sending, came to its end.
type sight int

const (
	nothing sight = iota // it has not
	whole                // sending: all was sent
	eof
	aReset
	late    // nothing happened for too long
	stopped // by this end itself
	wrong   // other bytes came than were sent
	failed  // otherwise
)

var sights = [...]string{
	"nothing", "all sent", "an end of file", "a reset", "nothing for too long", "its own end", "other bytes than were sent", "a failure",
}

func (s sight) String() string { return sights[s] }

// end is one end of a connection.
type end struct {
	pair     *pair
	role     role
	part     *part
	tally    *tally
	patience time.Duration
	ctx      context.Context // of the run
	conn     *net.TCPConn    // owned by run
	out, in  *traffic.Stream
	broken   chan struct{} // closed when pauses are of no use any more
	once     sync.Once

	// The rest is of pair.mu. Bytes are with the greeting.
	sent, received int64
	sentEnd, saw   sight
	err            error // an unexpected one
	shut           bool  // it has sent its end of file, or is about to
	closed         bool  // it is about to close in order
	torn           bool  // it is about to reset
	stopping       bool
	unread         int // bytes that it left in the kernel when it ended
}

// run is all that the end does.
func (e *end) run(ctx context.Context, conn *net.TCPConn) {
	e.ctx, e.conn = ctx, conn
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(e.patience + e.pair.plan.length()))
	defer context.AfterFunc(ctx, e.halt)()
	var both sync.WaitGroup
	both.Go(e.receive)
	both.Go(e.send)
	if e.part.end.how == finish {
		both.Wait()
		e.lock(func() { e.closed = true })
		return
	}
	e.awaitEnding()
	e.halt()
	both.Wait()
	e.tear()
}

func (e *end) lock(f func()) {
	e.pair.mu.Lock()
	defer e.pair.mu.Unlock()
	f()
	e.pair.changed.Broadcast()
}

func (e *end) peer() *end { return e.pair.ends[e.role.other()] }

// await waits until f, called with pair.mu held.
func (e *end) await(f func() bool) {
	e.pair.mu.Lock()
	defer e.pair.mu.Unlock()
	for !f() {
		e.pair.changed.Wait()
	}
}

// greeted is the length of the greeting within the bytes that this end sends.
func (e *end) greeted() int64 {
	if e.role == client && !e.pair.plan.silent {
		return greeting
	}
	return 0
}

// awaitEnding waits until it is time for the end to end, or it is over anyway.
func (e *end) awaitEnding() {
	x := &e.part.end
	over := func() bool {
		p := e.peer()
		// A proxy that turns a reset into an end of file leaves a peer that sees nothing any more.
		nothingComes := e.saw > eof || e.saw == eof && (x.how != quietReset || p.saw != nothing || p.closed || p.torn)
		return nothingComes && e.sentEnd != nothing
	}
	e.await(func() bool {
		if over() {
			return true
		}
		there := e.sent-e.greeted() >= x.sent && e.received-e.peer().greeted() >= x.received
		if x.how == quietReset {
			there = there && e.peer().received == e.sent && e.sentEnd == whole
		}
		return there && (x.how != shutReset && !e.pair.plan.silent || e.sentEnd != nothing)
	})
	e.pause(x.pause)
}

// halt makes receiving and sending stop.
func (e *end) halt() {
	e.lock(func() { e.stopping = true })
	e.snap()
	_ = e.conn.SetDeadline(time.Unix(1, 0))
}

// snap ends pauses, and those to come.
func (e *end) snap() { e.once.Do(func() { close(e.broken) }) }

// pause waits, unless it is of no use any more.
func (e *end) pause(d time.Duration) {
	if d <= 0 {
		return
	}
	if d >= idle {
		e.tally.count(idles)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-e.broken:
	}
}

// idle is from where on a pause is counted.
const idle = 50 * time.Millisecond

// tear ends the connection as planned.
func (e *end) tear() {
	unread := 0
	control(e.conn, func(fd int) { unread, _ = sys.FIONREAD(fd) })
	resets := e.part.end.how != leave
	e.lock(func() {
		e.unread = unread
		e.torn = resets || unread > 0
		e.closed = !e.torn
	})
	if resets {
		_ = e.conn.SetLinger(0)
	}
	e.countTearing()
}

func (e *end) countTearing() {
	switch e.part.end.how {
	case quietReset:
		e.tally.count(quietResets)
	case shutReset:
		e.tally.count(shutResets)
	case leave:
		e.tally.count(left)
		if e.torn {
			e.tally.count(leftUnread)
		}
	default:
		e.tally.count([2]action{clientResets, serverResets}[e.role])
	}
}
