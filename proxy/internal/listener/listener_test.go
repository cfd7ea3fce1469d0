package listener_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/internal/listener"
	"github.com/penstock/penstock/proxy/sockopt"
)

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
	accepts := 0
	for i := range 10 {
		dial(t, s.Listener)
		if i < 2 {
			<-s.conns
			accepts++
		}
	}
	for ; accepts < 10; accepts++ {
		if !s.Queued() || len(s.conns) != 0 || limit.Active() != limit.Max() {
			t.Fatalf("%d connections are served, %d more were accepted", limit.Active(), len(s.conns))
		}
		s.finish <- struct{}{}
		<-s.conns
	}
}

// At the limit nothing is tried: accept is called once for each connection, and
// once more by the goroutine that waits in it.
func TestAtTheLimitNothingSpins(t *testing.T) {
	l := listen(t, "127.0.0.1:0", &listener.Config{Limit: listener.NewLimit(1)})
	calls := make(chan struct{}, 1000)
	l.WrapAccept(func(accept func() (net.Conn, error)) (net.Conn, error) {
		calls <- struct{}{}
		return accept()
	})
	s := start(t, l)
	defer s.end(t)
	for range 5 {
		dial(t, l)
	}
	for i := range 5 {
		<-s.conns
		if len(calls) != i+1 {
			t.Errorf("%d calls of accept for %d connections", len(calls), i+1)
		}
		if i < 4 {
			s.finish <- struct{}{}
		}
	}
}

func TestListenersShareALimit(t *testing.T) {
	cfg := &listener.Config{Limit: listener.NewLimit(3)}
	a := start(t, listen(t, "127.0.0.1:0", cfg))
	b := start(t, listen(t, "127.0.0.1:0", cfg))
	for range 5 {
		dial(t, a.Listener)
		dial(t, b.Listener)
	}
	var served sync.WaitGroup
	for range 10 {
		served.Go(func() {
			s := a
			select {
			case <-a.conns:
			case <-b.conns:
				s = b
			}
			if n := cfg.Limit.Active(); n < 1 || n > 3 {
				t.Errorf("%d connections are served", n)
			}
			s.finish <- struct{}{}
		})
	}
	served.Wait()
	a.end(t)
	b.end(t)
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

// Connections in the queue when accepting is stopped at the limit are taken out
// of it at once, so that the listener closes, and served one after the other.
func TestQueuedConnectionsAboveTheLimitAreServed(t *testing.T) {
	const queued = 20
	limit := listener.NewLimit(1)
	s := start(t, listen(t, "127.0.0.1:0", &listener.Config{Limit: limit}))
	for range 1 + queued {
		dial(t, s.Listener)
	}
	<-s.conns
	s.stop()
	for { // until the listener is closed
		conn, err := net.Dial("tcp", s.Addr())
		if errors.Is(err, syscall.ECONNREFUSED) {
			break
		}
		if err == nil {
			conn.Close() // it may have been in time: then it is served below
		} else if !errors.Is(err, syscall.ECONNRESET) {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
	for range queued {
		if len(s.conns) != 0 {
			t.Error("more connections are served than the limit allows")
		}
		s.finish <- struct{}{}
		<-s.conns
	}
	close(s.finish)
	if err := <-s.done; err != nil {
		t.Error(err)
	}
}

// A listener that has accepted a connection for which there is no slot, because
// another took the last, stops accepting all the same.
func TestStopWithAConnectionInHand(t *testing.T) {
	cfg := &listener.Config{Limit: listener.NewLimit(1)}
	second := listen(t, "127.0.0.1:0", cfg)
	accepts := make(chan struct{})
	begun := sync.OnceFunc(func() { close(accepts) })
	second.WrapAccept(func(accept func() (net.Conn, error)) (net.Conn, error) {
		begun()
		return accept()
	})
	b := start(t, second)
	<-accepts
	a := start(t, listen(t, "127.0.0.1:0", cfg))
	dial(t, a.Listener)
	<-a.conns
	dial(t, b.Listener)
	for b.Queued() {
		time.Sleep(time.Millisecond)
	}
	a.stop()
	b.stop()
	for _, s := range []*server{a, b} {
		waitClosed(t, s)
	}
	close(a.finish)
	<-b.conns
	close(b.finish)
	if err := errors.Join(<-a.done, <-b.done); err != nil {
		t.Error(err)
	}
}

// waitClosed waits until no socket listens any more.
func waitClosed(t *testing.T, s *server) {
	t.Helper()
	for begin := time.Now(); time.Since(begin) < time.Minute; time.Sleep(time.Millisecond) {
		conn, err := net.Dial("tcp", s.Addr())
		if errors.Is(err, syscall.ECONNREFUSED) {
			return
		}
		if err == nil {
			conn.Close() // it may have been in time: then it is served
		} else if !errors.Is(err, syscall.ECONNRESET) {
			t.Fatal(err)
		}
	}
	t.Fatal("it still listens")
}

// When the queue is emptied, only the connections that it may have held are taken. This does not
// last as long as clients connect.
func TestEmptyingTheQueueIsBounded(t *testing.T) {
	l := listen(t, "127.0.0.1:0", nil)
	l.SetBacklog(4)
	for range 20 {
		dial(t, l)
	}
	ctx, stop := context.WithCancel(context.Background())
	stop()
	var mu sync.Mutex
	handled := 0
	err := l.Serve(ctx, func(conn net.Conn, release func()) {
		defer release()
		mu.Lock()
		defer mu.Unlock()
		handled++
		conn.Close()
	})
	if err != nil || handled != 5 {
		t.Errorf("%d connections were handled (%v), want 5", handled, err)
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

// The deadline that interrupts accepting is never set late, while the queue is being emptied:
// those accepts would miss connections in the queue.
func TestInterruptionComesBeforeTheQueueIsEmptied(t *testing.T) {
	l := listen(t, "127.0.0.1:0", &listener.Config{Limit: listener.NewLimit(1)})
	begin, deadlines := time.Now(), make(chan time.Time, 100)
	l.OnDeadline(func(d time.Time) {
		if d.Before(begin) {
			for range 10_000 {
				runtime.Gosched()
			}
		}
		deadlines <- d
	})
	s := start(t, l)
	dial(t, l)
	<-s.conns
	dial(t, l)
	s.stop()
	s.finish <- struct{}{}
	<-s.conns
	s.end(t)
	close(deadlines)
	emptying := false
	for d := range deadlines {
		if past := d.Before(begin); past && emptying {
			t.Error("accepting was interrupted while the queue was emptied")
		} else if !past {
			emptying = true
		}
	}
}
