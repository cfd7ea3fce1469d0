package lane_test

import (
	"bytes"
	"io"
	"net"
	"runtime"
	"testing"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/netns"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/lane"
)

// TestGapIsMade: an endpoint whose side is shut sends nothing more, and with both sides shut no more than its window was then, and the rest once
// they are opened, at once: its timers are of a minute. Bytes to it go on meanwhile. The first packet takes the session.
func TestGapIsMade(t *testing.T) {
	t.Parallel()

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
	s, err := register(l, fd[0], fd[1], o)
	if err != nil {
		t.Fatal(err)
	}
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
	until(t, "all is acknowledged", func() bool {
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
	until(t, "it has sent all that it may", func() bool {
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
	until(t, "all is acknowledged", func() bool {
		n, err := sys.SIOCOUTQ(fd[1])
		return err == nil && n == 0
	})
	if more := unread(t, b); len(more) > 0 {
		t.Errorf("%d bytes more were sent", len(more))
	}
	if !s.Arm() {
		t.Fatal("not armed")
	}
	if err := s.Open(fd[0], fd[1]); err != nil {
		t.Fatal(err)
	}
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
	runtime.KeepAlive([2]*net.TCPConn{a, b}) // whose descriptors the session has
}

// unread reads the bytes that wait in a socket.
func unread(t *testing.T, c *net.TCPConn) (read []byte) {
	t.Helper()
	n, err := sys.FIONREAD(sockets.FD(t, c))
	if err != nil || n == 0 {
		return nil
	}
	read = make([]byte, n)
	if _, err := io.ReadFull(c, read); err != nil {
		t.Fatal(err)
	}
	return read
}
