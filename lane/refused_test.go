package lane_test

import (
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/lane"
)

// open1 returns a descriptor of the test's, or fails.
func open1(t *testing.T) func(fd int, err error) int {
	return func(fd int, err error) int {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = syscall.Close(fd) })
		return fd
	}
}

// TestRegisterRefused: descriptors that can be no session's are refused, each for its own reason.
func TestRegisterRefused(t *testing.T) {
	t.Parallel()

	if !alone(t) {
		return
	}
	l := open(t, "lo")
	client, near, far, server := legs(t, listener(t, "127.0.0.1:0"))
	defer near.Close()
	defer far.Close()
	a, b, got := sockets.FD(t, near), sockets.FD(t, far), open1(t)
	s, err := register(l, a, b, &recorder{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Release()
	const multipath = 262
	for _, c := range []struct {
		name string
		fd   int
		want error
	}{
		{"unix", got(syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)), lane.NotTCP},
		{"UDP", got(syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM, 0)), lane.NotTCP},
		{"MPTCP", got(syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, multipath)), lane.Multipath},
		{"not connected", got(syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)), lane.NotEstablished},
		{"file", got(syscall.Open("/dev/null", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)), lane.NotTCP},
		{"none", -1, syscall.EBADF},
		{"joined", a, lane.JoinedAlready},
		{"the other end", sockets.FD(t, client), lane.SharedConnection},
	} {
		for _, fds := range [][2]int{{c.fd, b}, {b, c.fd}} {
			if c.name == "the other end" {
				fds = [2]int{c.fd, sockets.FD(t, server)}
			}
			if _, err := register(l, fds[0], fds[1], &recorder{}); !errors.Is(err, c.want) {
				t.Errorf("%s: %v, want %v", c.name, err, c.want)
			}
		}
	}
}

// TestJoinRefused: a connection that is closed, or that a session has already, is an error, and the other one is the caller's still. A
// session that comes back has no reason "none".
func TestJoinRefused(t *testing.T) {
	t.Parallel()

	if !alone(t) {
		return
	}
	l, at := open(t, "lo"), listener(t, "127.0.0.1:0")
	client, a, b, server := legs(t, at)
	gone, other := connected(t, at)
	gone.Close()
	other.Close()
	for _, c := range [][2]*net.TCPConn{{gone, b}, {a, gone}} {
		if _, err := l.Join(c[0], c[1], nil); !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	}
	p := join(t, l, client, a, b, server)
	p.talk(t)
	p.comesBack(t, time.Second)
	p.MayLeave()
	p.exchange(t, []byte("from user space"), p.client, p.server)
	if n, ok := l.Stats().Refused[lane.None]; ok {
		t.Errorf("%d sessions could not leave for no reason", n)
	}
	client, a, b, server = legs(t, at)
	p = join(t, l, client, a, b, server)
	if err := p.ComeBack(0); err != nil { // it stays in user space
		t.Error(err)
	}
	p.exchange(t, []byte("once"), p.client, p.server)
	_, c, d, _ := legs(t, at)
	for _, again := range [][2]*net.TCPConn{{a, b}, {b, a}, {a, c}, {c, b}} {
		if s, err := l.Join(again[0], again[1], nil); s != nil || !errors.Is(err, lane.JoinedAlready) {
			t.Errorf("joined again: %v, %v", s, err)
		}
	}
	p.exchange(t, []byte("and goes on"), p.client, p.server)
	if _, err := l.Join(c, d, nil); err != nil {
		t.Error("a connection that was to be joined with one of another session is not free:", err)
	}
}

// TestBadConfig: configurations that no lane can have are invalid, not unavailable.
func TestBadConfig(t *testing.T) {
	t.Parallel()

	if !alone(t) {
		return
	}
	lo := []string{"lo"}
	for _, c := range []lane.Config{
		{},
		{Devices: []string{""}},
		{Devices: []string{"lo", "eth0", "lo"}},
		{Devices: lo, Sessions: -1},
		{Devices: lo, Sessions: 1 << 31},
		{Devices: lo, Linger: -1},
		{Devices: lo, UserTimeout: -1},
		{Devices: lo, KeepAlive: -1},
		{Devices: lo, Pin: t.TempDir()},
	} {
		if l, err := lane.Open(c); !errors.Is(err, os.ErrInvalid) {
			t.Errorf("%+v: %v", c, err)
			if err == nil {
				l.Close()
			}
		}
	}
	l, err := lane.Open(lane.Config{Devices: lo, Sessions: 1 << 30})
	var missing *lane.Unavailable
	if err == nil {
		l.Close()
	} else if !errors.As(err, &missing) || missing.Missing[0] != "memory for that many sessions" {
		t.Error(err)
	}
}

// TestMisusedSession: descriptors that are none are not the lane's, and one connection is no session. Close waits for Close.
func TestMisusedSession(t *testing.T) {
	t.Parallel()

	if !alone(t) {
		return
	}
	p, a, b, _ := registered(t, lane.Config{})
	p.leaves(t, a, b)
	if err := p.Session.Leave(-1, -1); !errors.Is(err, syscall.EBADF) {
		t.Error("Leave:", err)
	}
	if err := p.Session.Leave(a, b); err != nil {
		t.Error("Leave after one of no descriptors:", err)
	}
	if s, err := p.lane.Join(p.client, p.client, nil); s != nil || !errors.Is(err, os.ErrInvalid) {
		t.Errorf("Join of a connection with itself: %v, %v", s, err)
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if err := p.lane.Close(); err != nil {
				t.Error("Close:", err)
			}
		})
	}
	all.Wait()
}
