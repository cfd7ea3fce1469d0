package lane_test

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/lane"
)

// pinnedLane opens a lane with pins, and one that no session has to be closed for.
func pinnedLane(t *testing.T, dir string) *lane.Lane {
	t.Helper()
	l, err := lane.Open(lane.Config{Devices: []string{"lo"}, Sessions: 8, Pin: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// pins returns how many files a directory has.
func pins(t *testing.T, dir string) int {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return len(files)
}

// TestLeaveOfNone: a lane that is left without a session that goes on is neither attached nor pinned: the next process may have other
// pins. Sessions in user space are reset, and one that has ended, and lingers, does not go on.
func TestLeaveOfNone(t *testing.T) {
	t.Parallel()

	if !aloneWithMounts(t) {
		return
	}
	dir := filesystem(t)
	other := dir + "2"
	if err := os.Mkdir(other, 0o700); err != nil {
		t.Fatal(err)
	}
	l := pinnedLane(t, dir)
	ended, here, gone := joined(t, l, "tcp", "127.0.0.1:0"), joined(t, l, "tcp", "127.0.0.1:0"), joined(t, l, "tcp", "127.0.0.1:0")
	ended.talk(t)
	if err := errors.Join(ended.client.CloseWrite(), ended.server.CloseWrite()); err != nil {
		t.Fatal(err)
	}
	ended.Wait()
	gone.talk(t)
	gone.Reset()
	if err := l.Leave(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []*net.TCPConn{here.client, here.server, gone.client, gone.server} {
		wantReset(t, "a session that does not go on", c)
	}
	if n := pins(t, dir); n > 0 {
		t.Errorf("%d files are pinned", n)
	}
	l = pinnedLane(t, other)
	left := joined(t, l, "tcp", "127.0.0.1:0")
	left.talk(t)
	if err := l.Leave(); err != nil {
		t.Fatal(err)
	}
	left.exchange(t, []byte("goes on"), left.client, left.server)
	if _, err := lane.Open(lane.Config{Devices: []string{"lo"}, Pin: dir}); !errors.Is(err, lane.ErrBusy) {
		t.Errorf("while a session goes on: %v", err)
	}
	if l = pinnedLane(t, other); l.Stats().Adopted != 1 {
		t.Errorf("%+v", l.Stats())
	}
	for _, c := range []*net.TCPConn{left.client, left.server} {
		if err := c.CloseWrite(); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "it has ended", func() bool { return l.Stats().Lane == 0 })
	if err := l.Leave(); err != nil {
		t.Fatal(err)
	}
	if n := pins(t, other); n > 0 {
		t.Errorf("%d files are pinned after the end of an adopted session", n)
	}
}

// TestLeaveLosesNone: a session that leaves user space at the moment of Lane.Leave is reset, or goes on, and the programs stay
// for it.
func TestLeaveLosesNone(t *testing.T) {
	t.Parallel()

	if !aloneWithMounts(t) {
		return
	}
	dir, target := filesystem(t), sockets.Server(t, sockets.Echo)
	var went, reset int
	for round := range 12 {
		l := pinnedLane(t, dir)
		client, a := connected(t, listener(t, "127.0.0.1:0"))
		b, err := net.Dial("tcp", target)
		if err != nil {
			t.Fatal(err)
		}
		limited(t, client)
		var s *lane.Session
		if s, err = l.Join(a, b.(*net.TCPConn), nil); err != nil {
			t.Fatal(err)
		}
		over := make(chan struct{})
		go func() {
			defer close(over)
			for began := time.Now(); !s.Left() && time.Since(began) < time.Duration(round%4)*time.Millisecond; {
			}
			if err := l.Leave(); err != nil {
				t.Error(err)
			}
		}()
		for ended := false; err == nil && !ended; {
			select {
			case <-over:
				ended = true // and once more
			default:
			}
			if _, err = io.WriteString(client, "x"); err == nil {
				_, err = io.ReadFull(client, make([]byte, 1))
			}
		}
		<-over
		n := pins(t, dir)
		switch {
		case err == nil && n > 0:
			went++
			if err := pinnedLane(t, dir).Close(); err != nil {
				t.Fatal(err)
			}
		case n == 0 && (errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)):
			reset++
		default:
			t.Fatalf("%d files are pinned, and the client has %v", n, err)
		}
	}
	t.Logf("%d went on, %d were reset", went, reset)
}
