package lane_test

import (
	"bytes"
	"io"
	"testing"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/netns"
	"github.com/penstock/penstock/internal/testutil/sockets"
)

// TestGapIsMade: an endpoint whose side is shut sends nothing more, and all that it has to send once the side is opened, at once: its timers are
// of a minute. The first packet takes the session.
func TestGapIsMade(t *testing.T) {
	if !alone(t) {
		return
	}
	netns.Here(t).IP("route replace local 127.0.0.1 dev lo table local proto kernel scope host src 127.0.0.1 rto_min 60s")
	l := open(t, "lo")
	client, a, b, server := legs(t, listener(t, "127.0.0.1:0"))
	fd, source := [2]int{sockets.FD(t, a), sockets.FD(t, b)}, sockets.FD(t, server)
	o := newOwner()
	s, err := l.Register(fd[0], fd[1], o)
	if err != nil {
		t.Fatal(err)
	}
	if s.Shut(false, true) {
		t.Error("shut before the grace period")
	}
	<-o.ready
	p := pair{client, server, new([2]uint64), s}
	p.exchange(t, []byte("hello"), client, a)
	p.exchange(t, []byte("hello"), server, b)
	p.exchange(t, []byte("hello"), a, client)
	if !s.Shut(false, true) || l.Stats().Gaps != 1 {
		t.Fatal("not shut")
	}
	p.exchange(t, []byte("this shows it"), b, server)
	until(t, "all is acknowledged", func() bool {
		n, err := sys.SIOCOUTQ(fd[1])
		return err == nil && n == 0
	})
	sent := bytes.Repeat([]byte("a flow "), 10_000)
	if _, err := server.Write(sent); err != nil {
		t.Fatal(err)
	}
	if n, err := sys.SIOCOUTQNSD(source); err != nil || n != len(sent) {
		t.Errorf("%d of %d bytes wait for a window, %v", n, len(sent), err)
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
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(client, got); err != nil || !bytes.Equal(got, sent) {
		t.Error("other bytes arrive, or", err)
	}
	s.Reset()
}
