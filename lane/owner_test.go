package lane_test

import (
	"errors"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/lane"
)

// An owner records what the lane has called.
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

// register registers a Session of its own.
func register(l *lane.Lane, a, b int, o lane.Owner) (*lane.Session, error) {
	s := new(lane.Session)
	return s, l.Register(s, a, b, o)
}

// TestRegister: the owner's session is armed and taken back, leaves with the next packet, and ends with its bytes counted. One that is
// released before never leaves.
func TestRegister(t *testing.T) {
	t.Parallel()

	if !alone(t) {
		return
	}
	l := open(t, "lo")
	client, a, b, server := legs(t, listener(t, "127.0.0.1:0"))
	fd := [2]int{sockets.FD(t, a), sockets.FD(t, b)}
	o := newOwner()
	s, err := register(l, fd[0], fd[1], o)
	if err != nil {
		t.Fatal(err)
	}
	if s.Arm() {
		t.Error("armed before the grace period")
	}
	<-o.ready
	p := pair{client, server, new([2]uint64), s}
	for _, way := range [2][3]*net.TCPConn{{client, a, server}, {server, b, client}} { // the owner relays, so that both sides are seen
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
	for i, c := range [2]*net.TCPConn{a, b} { // the descriptors are the lane's now
		f, err := c.File()
		if err != nil {
			t.Fatal(err)
		}
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

// waiting registers a session, whose sockets a and b the test closes at its end, and waits until it may be armed.
func waiting(t *testing.T, l *lane.Lane) (p pair, a, b *net.TCPConn, o *owner) {
	t.Helper()
	client, a, b, server := legs(t, listener(t, "127.0.0.1:0"))
	t.Cleanup(func() {
		a.Close()
		b.Close()
	})
	o = newOwner()
	s, err := register(l, sockets.FD(t, a), sockets.FD(t, b), o)
	if err != nil {
		t.Fatal(err)
	}
	<-o.ready
	return pair{client, server, new([2]uint64), s}, a, b, o
}

// TestRelease: a session that is released has no place any more, and its sockets are the owner's.
func TestRelease(t *testing.T) {
	t.Parallel()

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

// TestReleaseAfterEnd: a session that has ended otherwise is not released, and Leave does not close its descriptors, whose numbers may be those of other files.
func TestReleaseAfterEnd(t *testing.T) {
	t.Parallel()

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
	if err := s.Leave(sockets.FD(t, a), sockets.FD(t, b)); !errors.Is(err, os.ErrInvalid) {
		t.Errorf("the error of Leave after Release is %v", err)
	}
}

// TestUsedBeforeRegister: methods of a zero Session have no effect on the session that it is registered for.
func TestUsedBeforeRegister(t *testing.T) {
	t.Parallel()

	if !alone(t) {
		return
	}
	l := open(t, "lo")
	_, a, b, _ := legs(t, listener(t, "127.0.0.1:0"))
	defer a.Close()
	defer b.Close()
	o, s := newOwner(), new(lane.Session)
	s.Reset()
	_ = s.ComeBack(0)
	s.MayLeave()
	if err := l.Register(s, sockets.FD(t, a), sockets.FD(t, b), o); err != nil {
		t.Fatal(err)
	}
	defer s.Release()
	<-o.ready
	if !s.Arm() || s.Refused() != lane.None {
		t.Errorf("it is not armed: %v", s.Refused())
	}
}

func duplicate(t *testing.T, fd int) int {
	t.Helper()
	n, err := syscall.Dup(fd)
	if err != nil {
		t.Fatal(err)
	}
	return n
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

func (o *manyOwner) Ready(s *lane.Session)                { o.ready <- s }
func (o *manyOwner) Left(s *lane.Session)                 { o.left <- s }
func (o *manyOwner) Ended(s *lane.Session, r lane.Result) { o.ended <- endOf{s, r} }

// TestOneOwner: one owner has several sessions, and gets the calls of each with that. A Session that has had connections gets no others, also after
// its end, and one that was refused may be used.
func TestOneOwner(t *testing.T) {
	t.Parallel()

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
		if err := l.Register(s, a, b, o); err != nil {
			t.Fatal(err)
		}
		if err := l.Register(s, a, b, o); !errors.Is(err, os.ErrInvalid) {
			t.Error("registered twice:", err)
		}
		if got := <-o.ready; got != s {
			t.Errorf("%p is ready, want %p", got, s)
		}
		p := pair{client, server, new([2]uint64), s}
		p.leaves(t, a, b)
		if err := s.Leave(a, b); err != nil {
			t.Fatal(err)
		}
		there[s] = p
	}
	for s, p := range there {
		p.exchange(t, []byte("in the lane"), p.client, p.server)
		s.Reset()
		if e := <-o.ended; e.session != s || !e.result.Reset || !e.result.Left || e.result.Bytes != s.Bytes() {
			t.Errorf("%p has ended, want %p: %+v", e.session, s, e.result)
		}
		s.Wait()
		if err := l.Register(s, 0, 1, o); !errors.Is(err, os.ErrInvalid) {
			t.Error("registered after its end:", err)
		}
	}
}
