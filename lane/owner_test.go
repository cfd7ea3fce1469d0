package lane_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/internal/testutil/netns"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/lane"
)

// An owner records the calls of the lane.
type owner struct {
	ready, left chan struct{}
	ended       chan lane.Result
}

func newOwner() *owner {
	return &owner{make(chan struct{}, 1), make(chan struct{}, 1), make(chan lane.Result, 1)}
}

func (o *owner) Ready(*lane.Session)                  { o.ready <- struct{}{} }
func (o *owner) Left(*lane.Session)                   { o.left <- struct{}{} }
func (o *owner) Ended(_ *lane.Session, r lane.Result) { o.ended <- r }

// register registers a new Session.
func register(l *lane.Lane, a, b int, o lane.Owner) (*lane.Session, error) {
	s := new(lane.Session)
	return s, l.Register(s, a, b, o)
}

// TestRegister: the owner's session is armed and taken back, leaves with the next packet, and ends with its
// bytes counted. A session that is released before never leaves.
func TestRegister(t *testing.T) {
	if !alone(t) {
		return
	}
	l := open(t, "lo")
	client, a, b, server := legs(t, listener(t, "127.0.0.1:0"))
	fd := [2]int{sockets.FD(t, a), sockets.FD(t, b)}
	o := newOwner()
	s := must.Get(register(l, fd[0], fd[1], o))(t)
	if s.Arm() {
		t.Error("armed before the grace period")
	}
	<-o.ready
	p := pair{client, server, new([2]uint64), s}
	for _, way := range [2][3]*net.TCPConn{{client, a, server}, {server, b, client}} { // the owner relays, so that the lane sees packets of both sides
		p.exchange(t, []byte("hello"), way[0], way[1])
		to := b
		if way[1] == b {
			to = a
		}
		p.exchange(t, []byte("hello"), to, way[2])
	}
	*p.sent = [2]uint64{}
	if !s.Arm() || !s.Disarm() || !s.Arm() {
		t.Error("it is not armed, or was not taken back")
	}
	p.exchange(t, []byte("there"), client, server)
	<-o.left
	if s.Disarm() {
		t.Error("it has left, and is taken back")
	}
	for i, c := range [2]*net.TCPConn{a, b} { // the descriptors belong to the lane now
		f := must.Get(c.File())(t)
		fd[i] = duplicate(t, int(f.Fd()))
		f.Close()
		c.Close()
	}
	s.Leave(fd[0], fd[1])
	p.exchange(t, []byte("and back"), server, client)
	client.CloseWrite()
	server.CloseWrite()
	if r := <-o.ended; r.Reset || r.Bytes != *p.sent {
		t.Errorf("%+v, want %v", r, *p.sent)
	}
}

// waiting registers a session and waits until it can be armed. The test closes the session's sockets a and b at
// its end.
func waiting(t *testing.T, l *lane.Lane) (p pair, a, b *net.TCPConn, o *owner) {
	t.Helper()
	client, a, b, server := legs(t, listener(t, "127.0.0.1:0"))
	t.Cleanup(func() {
		a.Close()
		b.Close()
	})
	o = newOwner()
	s := must.Get(register(l, sockets.FD(t, a), sockets.FD(t, b), o))(t)
	<-o.ready
	return pair{client, server, new([2]uint64), s}, a, b, o
}

// TestRelease: a session that is released has no place any more, and its sockets belong to the owner.
func TestRelease(t *testing.T) {
	if !alone(t) {
		return
	}
	l := open(t, "lo")
	p, a, _, _ := waiting(t, l)
	s := p.Session
	if !s.Release() || s.Release() {
		t.Error("not released, or twice")
	}
	if s.Arm() {
		t.Error("armed after the release")
	}
	p.exchange(t, []byte("to the owner"), p.client, a)
	if st := l.Stats(); st.Left != 0 || st.Ended != 1 {
		t.Errorf("%+v", st)
	}
}

// TestReleaseAfterEnd: a session that has ended in another way cannot be released. Leave does not close its
// descriptors, because their numbers may belong to other files.
func TestReleaseAfterEnd(t *testing.T) {
	if !alone(t) {
		return
	}
	p, a, b, o := waiting(t, open(t, "lo"))
	s := p.Session
	s.Reset()
	<-o.ended
	if s.Release() {
		t.Error("released after its end")
	}
	must.Is(t, s.Leave(sockets.FD(t, a), sockets.FD(t, b)), os.ErrInvalid)
}

// owned registers a session of an owner that keeps its descriptors. Reads of them block.
func owned(t *testing.T, l *lane.Lane, o lane.Owner) (p pair, a, b int) {
	t.Helper()
	client, near, far, server := legs(t, listener(t, "127.0.0.1:0"))
	a, b = descriptor(t, near), descriptor(t, far)
	blocking(t, [2]int{a, b})
	s := must.Get(register(l, a, b, o))(t)
	return pair{client, server, new([2]uint64), s}, a, b
}

func duplicate(t *testing.T, fd int) int {
	t.Helper()
	return must.Get(syscall.Dup(fd))(t)
}

// A manyOwner owns several sessions.
type manyOwner struct {
	ready, left chan *lane.Session
	ended       chan endOf
}

type endOf struct {
	session *lane.Session
	result  lane.Result
}

// Its methods may call methods of the session.

func (o *manyOwner) Ready(s *lane.Session)                { s.Arm(); o.ready <- s }
func (o *manyOwner) Left(s *lane.Session)                 { s.Arm(); o.left <- s }
func (o *manyOwner) Ended(s *lane.Session, r lane.Result) { s.Arm(); o.ended <- endOf{s, r} }

// TestOneOwner: an owner of several sessions gets the calls for each with that session. A Session cannot be
// used again, even after its end, unless it was refused.
func TestOneOwner(t *testing.T) {
	if !alone(t) {
		return
	}
	const n = 3
	l, at := open(t, "lo"), listener(t, "127.0.0.1:0")
	o := &manyOwner{make(chan *lane.Session, n), make(chan *lane.Session, n), make(chan endOf, n)}
	var all [n]lane.Session
	there := make(map[*lane.Session]pair)
	for i := range all {
		s := &all[i]
		client, near, far, server := legs(t, at)
		a, b := descriptor(t, near), descriptor(t, far)
		blocking(t, [2]int{a, b})
		if err := l.Register(s, a, a, o); err == nil {
			t.Error("one connection is no session")
		}
		must.Do(t, l.Register(s, a, b, o))
		must.Is(t, l.Register(s, a, b, o), os.ErrInvalid)
		if got := <-o.ready; got != s {
			t.Errorf("%p is ready, want %p", got, s)
		}
		p := pair{client, server, new([2]uint64), s}
		p.leaves(t, a, b)
		must.Do(t, s.Leave(a, b))
		there[s] = p
	}
	for s, p := range there {
		p.exchange(t, []byte("in the lane"), p.client, p.server)
		s.Reset()
		if e := <-o.ended; e.session != s || !e.result.Reset || !e.result.Left || e.result.Bytes != s.Bytes() {
			t.Errorf("%p has ended, want %p: %+v", e.session, s, e.result)
		}
		s.Wait()
		must.Is(t, l.Register(s, 0, 1, o), os.ErrInvalid)
	}
}

// A recorder records the calls for a registered session, and relays nothing.
type recorder struct {
	ready atomic.Bool
	left  atomic.Int64
	ended chan lane.Result
}

func (o *recorder) Ready(*lane.Session)                  { o.ready.Store(true) }
func (o *recorder) Left(*lane.Session)                   { o.left.Add(1) }
func (o *recorder) Ended(_ *lane.Session, r lane.Result) { o.ended <- r }

// descriptor takes the descriptor of a connection.
func descriptor(t *testing.T, c *net.TCPConn) int {
	t.Helper()
	f := must.Get(c.File())(t)
	fd, err := syscall.Dup(int(f.Fd()))
	must.Do(t, errors.Join(err, f.Close(), c.Close()))
	return fd
}

// relay moves n bytes from one blocking descriptor to another.
func relay(t *testing.T, from, to, n int) {
	t.Helper()
	b := make([]byte, n)
	for got := 0; got < n; {
		m, err := syscall.Read(from, b[got:])
		if err != nil || m == 0 {
			t.Fatal(m, err)
		}
		got += m
	}
	if m, err := syscall.Write(to, b); m != n || err != nil {
		t.Fatal(m, err)
	}
}

// pass sends a message. The owner relays it, unless the lane takes the session. pass reports whether the lane
// did.
func (p pair) pass(t *testing.T, from, to *net.TCPConn, a, b int) (left bool) {
	t.Helper()
	message, got := []byte("a message"), make([]byte, 9)
	must.Get(from.Write(message))(t)
	if left = !p.Disarm(); !left {
		relay(t, a, b, len(message))
	}
	if _, err := io.ReadFull(to, got); err != nil || !bytes.Equal(got, message) {
		t.Fatal(string(got), err)
	}
	return left
}

// blocking makes both descriptors block.
func blocking(t *testing.T, fd [2]int) {
	t.Helper()
	must.Do(t, errors.Join(syscall.SetNonblock(fd[0], false), syscall.SetNonblock(fd[1], false)))
}

// TestTakeBack: an owner lets its session leave, takes it back with new sockets, relays, and lets it leave
// again.
func TestTakeBack(t *testing.T) {
	if !alone(t) {
		return
	}
	l := open(t, "lo")
	o := &recorder{ended: make(chan lane.Result, 1)}
	p, a, b := owned(t, l, o)
	s, client, server, err := p.Session, p.client, p.server, error(nil)
	condition.Await(t, "it is ready", o.ready.Load)
	for round := range uint64(3) {
		blocking(t, [2]int{a, b})
		p.leaves(t, a, b)
		s.Leave(a, b)
		condition.Await(t, "the sockets are closed", func() bool { return l.Stats().Left == round+1 })
		p.exchange(t, []byte("in the lane"), client, server)
		p.exchange(t, []byte("both ways"), server, client)
		var ended [2]bool
		if a, b, ended, err = s.TakeBack(time.Second); err != nil || a < 0 || b < 0 || ended != [2]bool{} {
			t.Fatal(a, b, ended, err)
		}
		if s.Arm() {
			t.Error("it may leave at once")
		}
		p.pass(t, client, server, a, b)
		s.MayLeave()
	}
	s.Release()
	s.Wait()
	_, _ = syscall.Close(a), syscall.Close(b)
	if st := l.Stats(); st.Returned != 3 || st.Reset != 0 || st.Failed != 0 {
		t.Errorf("%+v", st)
	}
}

// TestReturnedMayShare: while a session that has come back lasts, a listener can be bound to the address at
// which its client was accepted.
func TestReturnedMayShare(t *testing.T) {
	if !alone(t) {
		return
	}
	l := open(t, "lo")
	at := listener(t, "127.0.0.1:0")
	p := joinedTo(t, l, at)
	p.talk(t)
	p.comesBack(t, time.Second)
	address := at.Addr().String()
	must.Do(t, at.Close())
	again := must.Get(net.Listen("tcp", address))(t)
	again.Close()
	p.exchange(t, []byte("it goes on"), p.client, p.server)
	p.Reset()
	p.Wait()
}

// A halfOwner is an owner that is also notified of ends of file.
type halfOwner struct {
	*owner
	half chan int
}

func (o halfOwner) HalfClosed(_ *lane.Session, from int) { o.half <- from }

// TestHalfClosedIsReported: the first end of file of a session in the lane is reported once, with its side. The
// second one is reported as the end of the session.
func TestHalfClosedIsReported(t *testing.T) {
	if !alone(t) {
		return
	}
	l := open(t, "lo")
	for side := range 2 {
		o := halfOwner{newOwner(), make(chan int, 2)}
		p, a, b := owned(t, l, o)
		<-o.ready
		s, client, server := p.Session, p.client, p.server
		ends := [2]*net.TCPConn{client, server}
		p.leaves(t, a, b)
		must.Do(t, s.Leave(a, b))
		p.exchange(t, []byte("in the lane"), client, server)
		if v, ok := s.Look(); !ok || !v.Ends[0].Last || v.Ends[1].Last {
			t.Errorf("the client was the last to send: %+v", v)
		}
		p.exchange(t, []byte("and back"), server, client)
		if v, ok := s.Look(); !ok || v.Ends[0].Last || !v.Ends[1].Last {
			t.Errorf("the server was the last to send: %+v", v)
		}
		must.Do(t, ends[side].CloseWrite())
		sockets.ExpectAll(t, ends[1-side], "")
		if from := <-o.half; from != side {
			t.Errorf("%d has ended, want %d", from, side)
		}
		must.Do(t, ends[1-side].CloseWrite())
		if r := <-o.ended; r.Reset || len(o.half) != 0 {
			t.Errorf("%+v, %d more ends of file", r, len(o.half))
		}
	}
}

var _ lane.Observer = halfOwner{}

// TestGapIsMade: an endpoint sends nothing more while its side is shut. If both sides are shut, it sends no
// more than its window was then. Once the sides are opened it sends the rest at once, although its timers are
// set to a minute. Bytes to the endpoint go on meanwhile. The first packet takes the session.
func TestGapIsMade(t *testing.T) {
	if !alone(t) {
		return
	}
	netns.Here(t).IP("route replace local 127.0.0.1 dev lo table local proto kernel scope host src 127.0.0.1 rto_min 60s")
	l := open(t, "lo")
	t.Run("of one way", func(t *testing.T) { gapIsMade(t, l, false) })
	t.Run("of both", func(t *testing.T) { gapIsMade(t, l, true) })
}

func gapIsMade(t *testing.T, l *lane.Lane, both bool) {
	before := l.Stats().Gaps
	client, a, b, server := legs(t, listener(t, "127.0.0.1:0"))
	fd, source := [2]int{sockets.FD(t, a), sockets.FD(t, b)}, sockets.FD(t, server)
	o := newOwner()
	s := must.Get(register(l, fd[0], fd[1], o))(t)
	if s.Shut(both, true) {
		t.Error("shut before the grace period")
	}
	<-o.ready
	p := pair{client, server, new([2]uint64), s}
	p.exchange(t, []byte("hello"), client, a)
	p.exchange(t, []byte("hello"), server, b)
	p.exchange(t, []byte("hello"), a, client)
	if !s.Shut(both, true) || l.Stats().Gaps != before+1 {
		t.Fatal("not shut")
	}
	p.exchange(t, []byte("this shows it"), b, server)
	condition.Await(t, "all is acknowledged", func() bool {
		n, err := sys.SIOCOUTQ(fd[1])
		return err == nil && n == 0
	})
	sent := bytes.Repeat([]byte("a flow "), 2<<20) // more than any window
	written := make(chan error)
	go func() {
		_, err := server.Write(sent)
		written <- err
	}()
	got := make([]byte, 0, len(sent))
	condition.Await(t, "it has sent all that it may", func() bool {
		got = append(got, unread(t, b)...)
		all, err := sys.SIOCOUTQ(source)
		waiting, errWaiting := sys.SIOCOUTQNSD(source)
		return err == nil && errWaiting == nil && waiting > 0 && all == waiting && (len(got) > 0 || !both)
	})
	if len(got) > len(sent)/2 || !both && len(got) > 0 {
		t.Errorf("%d of %d bytes were sent", len(got), len(sent))
	}
	p.exchange(t, []byte("the other way does not stand still"), client, a)
	p.exchange(t, []byte("the other way does not stand still"), b, server)
	condition.Await(t, "all is acknowledged", func() bool {
		n, err := sys.SIOCOUTQ(fd[1])
		return err == nil && n == 0
	})
	if more := unread(t, b); len(more) > 0 {
		t.Errorf("%d bytes more were sent", len(more))
	}
	if !s.Arm() {
		t.Fatal("not armed")
	}
	must.Do(t, s.Open(fd[0], fd[1]))
	<-o.left
	if s.Shut(true, true) || s.Disarm() {
		t.Error("it has left, and is shut, or taken back")
	}
	if err := s.Open(-1, -1); err != nil {
		t.Error("it has left:", err)
	}
	rest := make([]byte, len(sent)-len(got))
	if _, err := io.ReadFull(client, rest); err != nil || !bytes.Equal(append(got, rest...), sent) {
		t.Error("other bytes arrive, or", err)
	}
	if err := <-written; err != nil {
		t.Error(err)
	}
	s.Reset()
	runtime.KeepAlive([2]*net.TCPConn{a, b}) // the session uses their descriptors
}

// unread reads the bytes that wait in a socket.
func unread(t *testing.T, c *net.TCPConn) (read []byte) {
	t.Helper()
	n, err := sys.FIONREAD(sockets.FD(t, c))
	if err != nil || n == 0 {
		return nil
	}
	read = make([]byte, n)
	must.Get(io.ReadFull(c, read))(t)
	return read
}
