package listener_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/internal/listener"
	"github.com/penstock/penstock/proxy/sockopt"
)

func TestMain(m *testing.M) { leak.Main(m) }

func parse(t *testing.T, spec string) sockopt.Address {
	t.Helper()
	addr, err := sockopt.Parse(spec)
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

// abstract is the address of an abstract unix socket that is this process's alone.
func abstract(name string) string { return fmt.Sprintf("unix:@penstock-%s-%d", name, os.Getpid()) }

func listen(t *testing.T, spec string, cfg *listener.Config) *listener.Listener {
	t.Helper()
	l, err := listener.Listen(context.Background(), parse(t, spec), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// dial connects to l; the connection is closed at the end of the test.
func dial(t *testing.T, l *listener.Listener) net.Conn {
	t.Helper()
	addr := parse(t, l.Addr())
	conn, err := net.Dial(addr.Network, addr.Name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// server runs Serve, and holds the connections that it accepts.
type server struct {
	*listener.Listener
	conns  chan net.Conn // accepted
	finish chan struct{} // one element lets one handler return, closing lets all
	stop   context.CancelFunc
	done   chan error
}

func start(t *testing.T, l *listener.Listener) *server {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	s := &server{
		Listener: l, conns: make(chan net.Conn, 10_000), finish: make(chan struct{}), stop: stop, done: make(chan error, 1),
	}
	go func() {
		s.done <- l.Serve(ctx, func(conn net.Conn, release func()) {
			defer release()
			defer conn.Close()
			s.conns <- conn
			<-s.finish
		})
	}()
	t.Cleanup(stop)
	return s
}

// end stops the server, and waits until it has.
func (s *server) end(t *testing.T) {
	t.Helper()
	s.stop()
	close(s.finish)
	if err := <-s.done; err != nil {
		t.Error(err)
	}
}

func TestServe(t *testing.T) {
	for _, spec := range []string{"127.0.0.1:0", ":0", "[::1]:0", "localhost:0", abstract("listener")} {
		t.Run(spec, func(t *testing.T) {
			s := start(t, listen(t, spec, nil))
			client := dial(t, s.Listener)
			if _, err := client.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
			conn := <-s.conns
			if got, err := io.ReadFull(conn, make([]byte, 1)); got != 1 {
				t.Error(err)
			}
			s.end(t)
			if _, err := net.Dial(parse(t, s.Addr()).Network, parse(t, s.Addr()).Name); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("after the end, a connect returns %v", err)
			}
		})
	}
}

func TestAddressInUseIsOneClearLine(t *testing.T) {
	l := listen(t, "127.0.0.1:0", nil)
	_, err := listener.Listen(context.Background(), parse(t, l.Addr()), nil)
	want := "listen on " + l.Addr() + ": bind: address already in use"
	if !errors.Is(err, syscall.EADDRINUSE) || err.Error() != want {
		t.Errorf("error is %v, want %v", err, want)
	}
}

// TestPortWithoutPrivileges: the error names the capability for a port that needs it, and no other address.
func TestPortWithoutPrivileges(t *testing.T) {
	t.Parallel()

	for spec, want := range map[string]bool{"127.0.0.1:443": true, ":1023": true, ":1024": false, ":0": false, "unix:/run/443": false} {
		err := listener.Fault(parse(t, spec), syscall.EACCES)
		if !errors.Is(err, syscall.EACCES) || strings.Contains(err.Error(), "AmbientCapabilities=CAP_NET_BIND_SERVICE") != want {
			t.Errorf("%s: %v", spec, err)
		}
	}
}

func TestCloseEndsServe(t *testing.T) {
	s := start(t, listen(t, "127.0.0.1:0", nil))
	dial(t, s.Listener)
	<-s.conns
	s.Close()
	close(s.finish)
	if err := <-s.done; err != nil {
		t.Error(err)
	}
}

func TestAtTheLimitAcceptingPauses(t *testing.T) {
	limit := listener.NewLimit(2)
	s := start(t, listen(t, "127.0.0.1:0", &listener.Config{Limit: limit}))
	defer s.end(t)
	for range 10 {
		dial(t, s.Listener)
	}
	for i := range 10 {
		<-s.conns
		if i > 0 && (len(s.conns) != 0 || limit.Active() != limit.Max()) {
			t.Fatalf("%d connections are served, %d more were accepted", limit.Active(), len(s.conns))
		}
		if i > 0 && i < 9 {
			s.finish <- struct{}{}
		}
	}
}

func TestQueuedConnectionsAreServed(t *testing.T) {
	for _, spec := range []string{"127.0.0.1:0", "[::1]:0", abstract("queue"), "unix:" + sockets.Dir(t) + "/s"} {
		t.Run(strings.ReplaceAll(spec, "/", "_"), func(t *testing.T) {
			const queued = 50
			l := listen(t, spec, nil)
			for range queued {
				dial(t, l)
			}
			s := start(t, l)
			s.stop() // maybe before the first accept
			for range queued {
				<-s.conns
			}
			s.end(t)
		})
	}
}

// Each client that was connected before the stop gets its byte, whatever the
// moment at which the stop comes.
func TestStopAtAnyMomentLosesNoConnection(t *testing.T) {
	for round := range 40 {
		l := listen(t, "127.0.0.1:0", nil)
		ctx, stop := context.WithCancel(context.Background())
		served := make(chan error, 1)
		go func() {
			served <- l.Serve(ctx, func(conn net.Conn, release func()) {
				conn.Write([]byte("x"))
				conn.Close()
				release()
			})
		}()
		var early []net.Conn
		for range round {
			conn, err := net.Dial("tcp", l.Addr())
			if err != nil {
				t.Fatal(err)
			}
			early = append(early, conn)
		}
		stop()
		for i, conn := range early {
			if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
				t.Errorf("connection %d of %d: %v", i, round, err)
			}
			conn.Close()
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	}
}

// The values are none that package net sets on accepted sockets.
func TestAcceptedSocketsInheritTheOptions(t *testing.T) {
	for _, spec := range []string{"127.0.0.1:0", "[::1]:0", ":0"} {
		s := start(t, listen(t, spec, &listener.Config{
			Options: sockopt.Options{KeepAlive: 41 * time.Second, UserTimeout: 43 * time.Second},
		}))
		dial(t, s.Listener)
		fd := sockets.FD(t, (<-s.conns).(*net.TCPConn))
		for _, o := range []struct{ level, option, want int }{
			{sys.SOL_SOCKET, sys.SO_PROTOCOL, sys.IPPROTO_TCP}, // not MPTCP
			{sys.SOL_SOCKET, sys.SO_OOBINLINE, 1},
			{sys.SOL_SOCKET, sys.SO_KEEPALIVE, 1},
			{sys.IPPROTO_TCP, sys.TCP_NODELAY, 1},
			{sys.IPPROTO_TCP, sys.TCP_KEEPIDLE, 41},
			{sys.IPPROTO_TCP, sys.TCP_KEEPINTVL, 10},
			{sys.IPPROTO_TCP, sys.TCP_USER_TIMEOUT, 43_000},
		} {
			got, err := sys.GetsockoptInt(fd, o.level, o.option)
			if err != nil || got != o.want {
				t.Errorf("accepted on %s: option %d of level %d is %d, %v, want %d", spec, o.option, o.level, got, err, o.want)
			}
		}
		s.end(t)
	}
}

// script makes a call of accept fail with the error that is sent, or work if that
// is nil; after fails is closed it works.
type script struct {
	*server
	fails  chan error
	calls  chan struct{}  // one element for each call of accept
	ticks  chan time.Time // the clock
	waited chan struct{}  // one element for each pause that has begun
}

func startScript(t *testing.T) *script {
	t.Helper()
	s := &script{
		fails: make(chan error), calls: make(chan struct{}, 100),
		ticks: make(chan time.Time), waited: make(chan struct{}, 100),
	}
	l := listen(t, "127.0.0.1:0", &listener.Config{Limit: listener.NewLimit(10)})
	l.SetAfter(func(d time.Duration) <-chan time.Time {
		if d != 100*time.Millisecond {
			t.Errorf("the pause is %v", d)
		}
		s.waited <- struct{}{}
		return s.ticks
	})
	l.WrapAccept(func(accept func() (net.Conn, error)) (net.Conn, error) {
		s.calls <- struct{}{}
		if err := <-s.fails; err != nil {
			return nil, &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", err)}
		}
		return accept()
	})
	s.server = start(t, l)
	return s
}

func TestExhaustionPausesAccepting(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EPERM} {
		t.Run(errno.Error(), func(t *testing.T) {
			s := startScript(t)
			const tries = 5
			for range tries {
				<-s.calls
				s.fails <- errno
				<-s.waited
				if len(s.calls) != 0 {
					t.Fatal("accept is called although the time is not up")
				}
				s.ticks <- time.Time{}
			}
			dial(t, s.Listener)
			close(s.fails)
			<-s.conns
			s.end(t)
		})
	}
}

func TestStopAndCloseEndAPause(t *testing.T) {
	for name, end := range map[string]func(*script){
		"stop":  func(s *script) { s.stop() },
		"close": func(s *script) { s.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			s := startScript(t)
			<-s.calls
			s.fails <- syscall.EMFILE
			<-s.waited
			end(s)
			if err := <-s.done; err != nil {
				t.Error(err)
			}
			if len(s.calls) != 0 {
				t.Error("accept was called with nothing in the queue")
			}
		})
	}
}

func TestListenEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := listener.Listen(ctx, parse(t, "name.invalid:0"), nil)
	if err == nil || errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("error is %v", err)
	}
}
