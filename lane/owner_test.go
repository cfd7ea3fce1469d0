package lane_test

import (
	"net"
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

func (o *owner) Ready()              { o.ready <- struct{}{} }
func (o *owner) Left()               { o.left <- struct{}{} }
func (o *owner) Ended(r lane.Result) { o.ended <- r }

// TestRegister: the owner's session is armed and taken back, leaves with the next packet, and ends with its bytes counted. One that is
// released before never leaves.
func TestRegister(t *testing.T) {
	if !alone(t) {
		return
	}
	l := open(t, "lo")
	client, a, b, server := legs(t, listener(t, "127.0.0.1:0"))
	fd := [2]int{sockets.FD(t, a), sockets.FD(t, b)}
	o := newOwner()
	s, err := l.Register(fd[0], fd[1], o)
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

// TestRelease: a session that is released has no place any more, and its sockets are the owner's.
func TestRelease(t *testing.T) {
	if !alone(t) {
		return
	}
	l := open(t, "lo")
	client, a, b, server := legs(t, listener(t, "127.0.0.1:0"))
	defer a.Close()
	defer b.Close()
	o := newOwner()
	s, err := l.Register(sockets.FD(t, a), sockets.FD(t, b), o)
	if err != nil {
		t.Fatal(err)
	}
	<-o.ready
	s.Release()
	if s.Arm() {
		t.Error("armed after the release")
	}
	pair{client, server, new([2]uint64), s}.exchange(t, []byte("to the owner"), client, a)
	if st := l.Stats(); st.Left != 0 || st.Ended != 1 {
		t.Errorf("%+v", st)
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
