package listener_test

import (
	"errors"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/internal/listener"
	"github.com/penstock/penstock/proxy/sockopt"
)

// address is that of a text in which P is the port.
func address(t *testing.T, text, port string) sockopt.Address {
	t.Helper()
	at, err := sockopt.Parse(strings.ReplaceAll(text, "P", port))
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// come has clients connect, until they are in the queue of the socket that gets them.
func come(t *testing.T, at string) {
	t.Helper()
	for range 20 {
		c, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatalf("%s: %v", at, err)
		}
		t.Cleanup(func() { c.Close() })
	}
}

// queue is the number of clients that wait.
func queue(t *testing.T, fd int) (n int) {
	t.Helper()
	for {
		c, _, err := syscall.Accept4(fd, syscall.SOCK_CLOEXEC)
		if err == syscall.EAGAIN {
			return n
		}
		if err != nil {
			t.Fatal(err)
		}
		syscall.Close(c)
		n++
	}
}

// TestTakeover: every form of an address takes over from every other that it overlaps with. No
// client comes to it before it is started. Each client comes to it when the other has yielded,
// and then the addresses are its alone.
func TestTakeover(t *testing.T) {
	forms := []string{"127.0.0.1:P", "0.0.0.0:P", ":P", "[::1]:P", "[::]:P", "localhost:P"}
	for _, from := range forms {
		for _, to := range forms {
			for mptcp := range 4 {
				testTakeover(t, from, to, &listener.Config{Multipath: mptcp&1 != 0}, &listener.Config{Multipath: mptcp&2 != 0})
			}
		}
	}
}

func testTakeover(t *testing.T, from, to string, fromConfig, toConfig *listener.Config) {
	t.Helper()
	port := sockets.Port(t)
	old, err := listener.Listen(t.Context(), address(t, from, port), fromConfig)
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	oldFD := detach(t, old)
	if l, err := listener.Bind(t.Context(), address(t, to, port), toConfig); err == nil {
		if l.Overlaps(old) {
			t.Errorf("%s and %s overlap", from, to)
		}
		l.Close()
		return
	} else if !errors.Is(err, syscall.EADDRINUSE) {
		t.Fatal(err)
	}
	if err := old.SetReusePort(true); err != nil {
		t.Fatal(err)
	}
	l, err := listener.Bind(t.Context(), address(t, to, port), toConfig)
	if err != nil {
		t.Fatalf("%s after %s: %v", to, from, err)
	}
	defer l.Close()
	if !l.Overlaps(old) || !old.Overlaps(l) {
		t.Errorf("%s and %s do not overlap", from, to)
	}
	fd, at := detach(t, l), "127.0.0.1:"+port
	if strings.Contains(from+to, "[::") {
		at = "[::1]:" + port
	}
	come(t, at)
	if n := queue(t, oldFD); n != 20 {
		t.Errorf("%s after %s: %d of 20 came to the old one while the new one did not listen", to, from, n)
	}
	if err := l.Start(old); err != nil {
		t.Fatal(err)
	}
	come(t, at)
	if n := queue(t, oldFD) + queue(t, fd); n != 20 {
		t.Errorf("%s after %s: %d of 20 came to either", to, from, n)
	}
	if err := old.StopAccepting(); err != nil {
		t.Error(err)
	}
	come(t, at)
	if n := queue(t, fd); n != 20 {
		t.Errorf("%s after %s: %d of 20 came to the new one", to, from, n)
	}
	if err := errors.Join(old.SetReusePort(false), l.ClearReusePort(), old.Close()); err != nil {
		t.Error(err)
	}
	come(t, at)
	if n := queue(t, fd); n != 20 {
		t.Errorf("%s after %s: %d of 20 came to the new one alone", to, from, n)
	}
	if _, err := listener.Listen(t.Context(), address(t, to, port), nil); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("%s after %s: another listener listens there: %v", to, from, err)
	}
	if other, err := listener.Bind(t.Context(), address(t, to, port), nil); err == nil && os.Getuid() == 0 {
		t.Errorf("%s after %s: another listener can share it", to, from)
		other.Close()
	}
}

func detach(t *testing.T, l *listener.Listener) int {
	t.Helper()
	fd, err := l.Detach()
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

// TestStartInAGroup: where the kernel does not remember the socket that was bound last, both have
// clients, and none is lost.
func TestStartInAGroup(t *testing.T) {
	port := sockets.Port(t)
	old, err := listener.Listen(t.Context(), address(t, "127.0.0.1:P", port), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	if err := old.SetReusePort(true); err != nil {
		t.Fatal(err)
	}
	l, err := listener.Bind(t.Context(), address(t, "127.0.0.1:P", port), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	other, err := net.Listen("tcp", "127.0.0.2:"+port) // so that it forgets
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	oldFD, fd := detach(t, old), detach(t, l)
	if err := errors.Join(l.Start(old), old.StopAccepting()); err != nil {
		t.Fatal(err)
	}
	come(t, "127.0.0.1:"+port)
	if n, m := queue(t, oldFD), queue(t, fd); n+m != 20 {
		t.Errorf("%d and %d of 20", n, m)
	}
}

// TestFamilies: without a host it is both, 0.0.0.0 is IPv4 and [::] IPv6.
func TestFamilies(t *testing.T) {
	for form, want := range map[string][2]bool{
		":P": {true, true}, "0.0.0.0:P": {true, false}, "[::]:P": {false, true}, "127.0.0.1:P": {true, false}, "[::1]:P": {false, true},
		"[::ffff:127.0.0.1]:P": {true, false},
	} {
		port := sockets.Port(t)
		l, err := listener.Listen(t.Context(), address(t, form, port), nil)
		if err != nil {
			t.Fatal(err)
		}
		for i, at := range []string{"127.0.0.1:" + port, "[::1]:" + port} {
			c, err := net.Dial("tcp", at)
			if err == nil {
				c.Close()
			} else if !errors.Is(err, syscall.ECONNREFUSED) {
				t.Error(err)
			}
			if (err == nil) != want[i] {
				t.Errorf("%s is reached at %s: %v, want %v", form, at, err == nil, want[i])
			}
			var own bool
			for _, a := range l.Own() {
				own = own || a.Addr().Is4() == (i == 0)
			}
			if own != want[i] {
				t.Errorf("%s reports that it has %v", form, l.Own())
			}
		}
		l.Close()
	}
	for only, want := range []int{2, 1} {
		lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
			return c.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), sys.IPPROTO_IPV6, sys.IPV6_V6ONLY, only) })
		}}
		ln, err := lc.Listen(t.Context(), "tcp", ":0")
		if err != nil {
			t.Fatal(err)
		}
		raw, err := ln.(*net.TCPListener).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		_ = raw.Control(func(fd uintptr) {
			err = errors.Join(
				syscall.SetsockoptLinger(int(fd), syscall.SOL_SOCKET, syscall.SO_LINGER, &syscall.Linger{Onoff: 1, Linger: 12}),
				syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, sys.SO_RCVLOWAT, 1000),
			)
		})
		if err != nil {
			t.Fatal(err)
		}
		l, err := listener.FromFD(ln, nil)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(l.Own()); n != want {
			t.Errorf("adopted with IPV6_V6ONLY %d: %v", only, l.Own())
		}
		_ = raw.Control(func(fd uintptr) {
			for option, want := range map[int]int{syscall.SO_LINGER: 0, sys.SO_RCVLOWAT: 1} {
				if got, err := syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, option); got != want || err != nil {
					t.Errorf("option %d of an adopted socket is %d, %v", option, got, err)
				}
			}
		})
		if err := l.StopAccepting(); err != nil { // another process goes on with the socket
			t.Error(err)
		}
		if c, err := net.Dial("tcp", ln.Addr().String()); err != nil {
			t.Error(err)
		} else {
			c.Close()
		}
		l.Close()
	}
}
