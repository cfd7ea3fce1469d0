package lane_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/lane"
)

// A recorder has a session registered, and relays nothing.
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
	f, err := c.File()
	if err != nil {
		t.Fatal(err)
	}
	fd, err := syscall.Dup(int(f.Fd()))
	if err = errors.Join(err, f.Close(), c.Close()); err != nil {
		t.Fatal(err)
	}
	return fd
}

// relay moves n bytes from one descriptor to another, which block.
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

// pass sends a message, which the owner relays unless the lane takes it, and reports whether it did.
func (p pair) pass(t *testing.T, from, to *net.TCPConn, a, b int) (left bool) {
	t.Helper()
	message, got := []byte("a message"), make([]byte, 9)
	if _, err := from.Write(message); err != nil {
		t.Fatal(err)
	}
	if left = !p.Disarm(); !left {
		relay(t, a, b, len(message))
	}
	if _, err := io.ReadFull(to, got); err != nil || !bytes.Equal(got, message) {
		t.Fatal(string(got), err)
	}
	return left
}

// blocking has reads of both descriptors wait.
func blocking(t *testing.T, fd [2]int) {
	t.Helper()
	if err := errors.Join(syscall.SetNonblock(fd[0], false), syscall.SetNonblock(fd[1], false)); err != nil {
		t.Fatal(err)
	}
}

// TestTakeBack: an owner has its session leave, takes it back with new sockets, relays, and has it leave again.
func TestTakeBack(t *testing.T) {
	t.Parallel()

	if !alone(t) {
		return
	}
	l := open(t, "lo")
	client, near, far, server := legs(t, listener(t, "127.0.0.1:0"))
	a, b := descriptor(t, near), descriptor(t, far)
	o := &recorder{ended: make(chan lane.Result, 1)}
	s, err := register(l, a, b, o)
	if err != nil {
		t.Fatal(err)
	}
	p := pair{client, server, new([2]uint64), s}
	until(t, "it is ready", o.ready.Load)
	for round := range uint64(3) {
		blocking(t, [2]int{a, b})
		until(t, "it leaves", func() bool {
			s.Arm()
			if p.pass(t, client, server, a, b) {
				return true
			}
			s.Arm()
			return p.pass(t, server, client, b, a)
		})
		s.Leave(a, b)
		until(t, "the sockets are closed", func() bool { return l.Stats().Left == round+1 })
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

// TestReturnedMayShare: while a session that has come back lasts, a listener can be bound to the address that its client was accepted at.
func TestReturnedMayShare(t *testing.T) {
	t.Parallel()

	if !alone(t) {
		return
	}
	l := open(t, "lo")
	at := listener(t, "127.0.0.1:0")
	p := joinedTo(t, l, at)
	p.talk(t)
	p.comesBack(t, time.Second)
	address := at.Addr().String()
	if err := at.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
	p.exchange(t, []byte("it goes on"), p.client, p.server)
	p.Reset()
	p.Wait()
}
