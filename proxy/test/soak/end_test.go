//go:build linux

package soak_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// pair is a connection through the proxy, with both its ends.
type pair struct {
	plan *plan
	ends [2]*end
	done chan struct{} // closed when both ends are over

	mu       sync.Mutex
	changed  sync.Cond // of mu: bytes were sent or received, or one of both is over
	attached bool      // the server's end is there
	over     int       // ends
}

func newPair(p *plan, t *tally, patience time.Duration) *pair {
	c := &pair{plan: p, done: make(chan struct{})}
	c.changed.L = &c.mu
	for r := range c.ends {
		c.ends[r] = &end{
			pair: c, role: role(r), part: &p.parts[r], tally: t, patience: patience, broken: make(chan struct{}),
			out: c.content(role(r)), in: c.content(role(r).other()),
		}
	}
	return c
}

// content is the stream that an end sends, a different one for every connection and end.
func (c *pair) content(r role) *stream {
	return newStream(c.plan.id.round*7919 + c.plan.id.n*2 + uint32(r))
}

// attach makes the server's end known; false if there is one already.
func (c *pair) attach() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.attached
	c.attached = true
	return !was
}

// serve runs an end on a connection, which it closes, and reports whether the
// other end was over before.
func (c *pair) serve(ctx context.Context, r role, conn *net.TCPConn) (last bool) {
	c.ends[r].run(ctx, conn)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over++
	if c.over == len(c.ends) {
		close(c.done)
		return true
	}
	return false
}

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
	out, in  *stream
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
		control(e.conn, func(fd int) { // what has come is acknowledged before the reset: otherwise it counts as lost once this end has ended
			_ = syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_QUICKACK, 1)
		})
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

const burst = 256 << 10

// send sends all of the plan, and the end of file if that is how it ends.
func (e *end) send() {
	saw := e.sendAll()
	if saw == whole {
		saw = e.sendEnd()
	}
	e.lock(func() { e.sentEnd = saw })
}

func (e *end) sendAll() sight {
	if e.greeted() > 0 {
		if saw := e.write(e.pair.plan.id.greet()); saw != nothing {
			return saw
		}
	}
	for _, s := range e.part.sends {
		if !e.ready(&s) {
			return stopped
		}
		if saw := e.sendOne(&s); saw != nothing {
			return saw
		}
	}
	return whole
}

// ready waits for the condition of a send; false if that cannot come any more.
func (e *end) ready(s *send) (ok bool) {
	e.await(func() bool {
		if s.awaitEnd {
			ok = e.saw == eof
		} else {
			ok = e.received-e.peer().greeted() >= s.await
		}
		return ok || e.saw != nothing || e.stopping
	})
	e.pause(s.pause)
	if ok && s.pause >= idle && s.n >= burst {
		e.tally.count(bursts)
	}
	return ok
}

func (e *end) sendOne(s *send) sight {
	if s.n == 0 {
		return nothing
	}
	e.tally.count(messages)
	if s.urgent {
		e.tally.count(urgentBytes)
		e.tally.offered[e.role].Add(s.n)
		return e.judge(e.writeUrgent(e.out.Next(1)))
	}
	for n := s.n; n > 0; {
		b := e.out.Next(int(min(n, int64(s.piece), maxChunk)))
		if saw := e.write(b); saw != nothing {
			return saw
		}
		n -= int64(len(b))
	}
	return nothing
}

func (e *end) write(b []byte) sight {
	e.tally.offered[e.role].Add(int64(len(b)))
	n, err := e.conn.Write(b)
	return e.judge(n, err)
}

// judge adds n to the bytes sent, and returns how sending ended if it did.
func (e *end) judge(n int, err error) sight {
	saw := e.name(err)
	e.lock(func() { e.sent += int64(n) })
	return saw
}

// writeUrgent sends a byte by MSG_OOB, however long that has to wait.
func (e *end) writeUrgent(b []byte) (n int, err error) {
	raw, err := e.conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	waited := raw.Write(func(fd uintptr) bool {
		n, err = sys.Send(int(fd), b, sys.MSG_OOB|sys.MSG_DONTWAIT|sys.MSG_NOSIGNAL)
		return !errors.Is(err, syscall.EAGAIN)
	})
	if waited != nil {
		return 0, waited
	}
	return n, err
}

// sendEnd sends the end of file, if it is planned.
func (e *end) sendEnd() sight {
	if h := e.part.end.how; h != finish && h != shutReset {
		return whole
	}
	ended, open := false, false
	e.lock(func() {
		e.shut = true
		ended = e.saw == eof
		open = e.peer().sent-e.peer().greeted() < e.peer().part.total
	})
	if ended && e.part.end.how == finish && e.pair.plan.id.n%2 == 0 {
		e.tally.count(closedFirst)
		return whole // close does it
	}
	if open {
		e.tally.count(halfCloses)
	}
	if saw := e.name(e.conn.CloseWrite()); saw != nothing {
		return saw
	}
	return whole
}

// name classifies an error; nothing if there is none.
func (e *end) name(err error) (saw sight) {
	switch {
	case err == nil:
		return nothing
	case errors.Is(err, io.EOF):
		return eof
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ENOTCONN):
		return aReset
	case errors.Is(err, os.ErrDeadlineExceeded):
		e.lock(func() {
			saw = late
			if e.stopping || e.saw > eof {
				saw = stopped
			}
		})
		return saw
	}
	e.lock(func() { e.err = err })
	return failed
}

func (e *end) receive() {
	saw := e.receiveAll()
	if saw == eof && e.collected() {
		saw = aReset
	}
	if saw == aReset {
		e.tally.count(resetsSeen)
	}
	e.lock(func() { e.saw = saw })
	if saw != eof { // nothing that is sent will arrive
		e.snap()
		_ = e.conn.SetWriteDeadline(time.Unix(1, 0))
	}
}

func (e *end) receiveAll() sight {
	buf, end := make([]byte, e.part.read.size), time.Now().Add(e.patience+e.pair.plan.length())
	waits := e.part.read.stalls
	for {
		room := len(buf)
		if len(waits) > 0 {
			got := e.received - e.peer().greeted() // written by this goroutine only
			if got >= waits[0].at {
				e.tally.count(stalls)
				e.pause(waits[0].d)
				waits = waits[1:]
				continue
			}
			room = int(min(int64(room), waits[0].at-got))
		}
		// In turns: at an urgent mark the runtime's poller may wait for ever, see [sockets.Marked].
		_ = e.conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		n, err := e.conn.Read(buf[:room])
		if errors.Is(err, os.ErrDeadlineExceeded) && time.Now().Before(end) && !e.over() {
			continue
		}
		if !e.check(buf[:n]) {
			return wrong
		}
		if saw := e.name(err); saw != nothing {
			return saw
		}
	}
}

// over reports whether nothing more is to be received.
func (e *end) over() (over bool) {
	e.lock(func() { over = e.stopping || e.saw > eof })
	return over
}

func (e *end) check(b []byte) bool {
	ok := e.in.Check(b)
	e.lock(func() {
		if !ok {
			e.err = fmt.Errorf("within bytes %d to %d", e.received, e.received+int64(len(b)))
		}
		e.received += int64(len(b))
	})
	return ok
}

// collected reports whether an end of file is none, but the result of a read after a write has
// collected the error of a reset. Then the kernel has closed the connection, though this end
// has not sent its end of file.
func (e *end) collected() bool {
	state, err := uint8(0), error(nil)
	control(e.conn, func(fd int) { state, err = sys.TCPState(fd) })
	if err != nil || state != sys.TCP_CLOSE {
		return false
	}
	shut := false
	e.lock(func() { shut = e.shut })
	return !shut
}

// set is a Control of package net: it sets the options that have to be set before a socket is
// connected, or listens.
func (o options) set(_, _ string, c syscall.RawConn) error {
	var err error
	failed := c.Control(func(fd uintptr) { err = o.apply(int(fd)) })
	return errors.Join(failed, err)
}

func (o options) apply(fd int) error {
	for _, option := range []struct{ level, name, value int }{
		{sys.SOL_SOCKET, syscall.SO_SNDBUF, o.sendBuffer},
		{sys.SOL_SOCKET, syscall.SO_RCVBUF, o.receiveBuffer},
		{sys.IPPROTO_TCP, syscall.TCP_MAXSEG, o.segment},
		{sys.SOL_SOCKET, sys.SO_OOBINLINE, 1},
		{sys.SOL_SOCKET, sys.SO_KEEPALIVE, o.probes},
		{sys.IPPROTO_TCP, sys.TCP_KEEPIDLE, 2 * o.probes},
		{sys.IPPROTO_TCP, sys.TCP_KEEPINTVL, o.probes},
		{sys.IPPROTO_TCP, sys.TCP_KEEPCNT, unanswered * o.probes},
	} {
		if option.value == 0 {
			continue
		}
		if err := sys.SetsockoptInt(fd, option.level, option.name, option.value); err != nil {
			return os.NewSyscallError("setsockopt", err)
		}
	}
	return nil
}

// unanswered is how many probes in a row may be lost. A session that comes back from the lane is silent for a grace
// period of RCU, and this lasts for seconds if other programs leave a reader in the kernel without a CPU.
const unanswered = 60

func (o options) dial(ctx context.Context, address string, patience time.Duration) (*net.TCPConn, error) {
	d := net.Dialer{Timeout: patience, KeepAlive: -1, Control: o.set}
	c, err := d.DialContext(ctx, "tcp4", address)
	if err != nil {
		return nil, err
	}
	conn := c.(*net.TCPConn)
	_ = conn.SetNoDelay(!o.nagle)
	return conn, nil
}

// control calls f with the descriptor of a connection, unless it is closed.
func control(c *net.TCPConn, f func(fd int)) {
	raw, err := c.SyscallConn()
	if err == nil {
		_ = raw.Control(func(fd uintptr) { f(int(fd)) })
	}
}

// faults returns the violations of a connection of which both ends are over.
func (c *pair) faults() (all []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.ends[client]
	switch {
	case c.plan.silent:
		return note(a.heardNothing())
	case !c.attached && c.plan.exact():
		return append(note(a.odd()), "server: expected the connection, got none")
	case !c.attached:
		return note(a.odd())
	}
	for _, e := range c.ends {
		all = append(all, note(e.odd(), e.ended(), e.complete(), e.unsent())...)
	}
	return all
}

// note is those that are not empty.
func note(texts ...string) (all []string) {
	for _, t := range texts {
		if t != "" {
			all = append(all, t)
		}
	}
	return all
}

func (e *end) odd() string {
	switch {
	case e.saw == wrong:
		return fmt.Sprintf("%v: expected the bytes that the %v had sent, got others, %v", e.role, e.role.other(), e.err)
	case e.saw == failed || e.sentEnd == failed:
		return fmt.Sprintf("%v: expected no such error, got %v", e.role, e.err)
	case e.saw == late:
		return fmt.Sprintf("%v: expected bytes or an end, got nothing for %v after %d of %d bytes sent",
			e.role, e.patience.Round(time.Millisecond), e.received, e.peer().sent)
	case e.saw == aReset && e.peer().part.end.how == finish:
		return fmt.Sprintf("%v: expected no reset, got one after %d of %d bytes sent", e.role, e.received, e.peer().sent)
	case e.saw == aReset && !e.peer().torn && !e.peer().closed:
		return fmt.Sprintf("%v: expected no reset before the %v's, got one after %d bytes", e.role, e.role.other(), e.received)
	}
	return ""
}

func (e *end) ended() string {
	peer := e.peer()
	switch {
	case e.saw != eof:
		return ""
	case !peer.shut && !peer.closed:
		return fmt.Sprintf("%v: expected a reset, which the %v had sent, got an end of file after %d of %d bytes sent",
			e.role, e.role.other(), e.received, peer.sent)
	case e.received != peer.sent:
		return fmt.Sprintf("%v: expected all of %d bytes before the end of file, got %d", e.role, peer.sent, e.received)
	}
	return ""
}

func (e *end) complete() string {
	sent := e.peer().sent
	switch {
	case e.received > sent:
		return fmt.Sprintf("%v: expected at most the %d bytes sent, got %d", e.role, sent, e.received)
	case e.pair.plan.exact() && e.saw != late && (e.received != sent || sent != e.peer().part.total+e.peer().greeted()):
		return fmt.Sprintf("%v: expected %d bytes, of which %d were sent, got %d",
			e.role, e.peer().part.total+e.peer().greeted(), sent, e.received)
	}
	return ""
}

func (e *end) unsent() string {
	calm := e.part.end.how == finish && e.peer().part.end.how == finish
	switch {
	case e.sentEnd == late && e.saw != late:
		return fmt.Sprintf("%v: expected to send %d bytes, got rid of %d within %v", e.role, e.part.total+e.greeted(), e.sent, e.patience)
	case calm && e.sentEnd == aReset && e.saw != aReset:
		return fmt.Sprintf("%v: expected to send %d bytes, got a reset after %d", e.role, e.part.total+e.greeted(), e.sent)
	}
	return ""
}

// heardNothing returns the fault in the end of a client that sent nothing.
func (e *end) heardNothing() string {
	switch how := e.part.end.how; {
	case e.received > 0:
		return fmt.Sprintf("client: expected nothing, got %d bytes", e.received)
	case how == finish && e.saw != eof:
		return fmt.Sprintf("client: expected an end of file after its own, got %v %v", e.saw, errText(e.err))
	case how != finish && e.saw != stopped:
		return fmt.Sprintf("client: expected nothing until it ended by %v, got %v %v", how, e.saw, errText(e.err))
	}
	return ""
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// A stream is bytes that differ from end to end of all connections.
type stream struct{ at int }

// content is what all streams are parts of: each begins elsewhere, and after its end begins again.
var content = func() []byte {
	b := make([]byte, contentSize, contentSize+maxChunk)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(b)
	return append(b, b[:maxChunk]...)
}()

const (
	contentSize = 1<<20 - 3
	maxChunk    = 256 << 10 // of Next
)

func newStream(seed uint32) *stream { return &stream{int(uint64(seed) * 7919 % contentSize)} }

// Next returns the next n bytes, which are not to be changed.
func (s *stream) Next(n int) []byte {
	b := content[s.at : s.at+n]
	s.at = (s.at + n) % contentSize
	return b
}

func (s *stream) Check(b []byte) bool {
	for len(b) > 0 {
		n := min(len(b), maxChunk)
		if !bytes.Equal(b[:n], s.Next(n)) {
			return false
		}
		b = b[n:]
	}
	return true
}
