package loop_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/loop"
)

// TestHandlersThatFail: a panic, Goexit and an error end their connections alone, with what had been written.
func TestHandlersThatFail(t *testing.T) {
	broken := errors.New("broken")
	s := startServer(t, &loop.Server{Loops: 1, Handle: func(c *loop.Conn) error {
		b := make([]byte, 1)
		for {
			if _, err := c.Read(b); err != nil {
				return err
			}
			_, _ = c.Write(b)
			switch b[0] {
			case 'p':
				panic(broken)
			case 'g':
				runtime.Goexit()
			case 'e':
				return broken
			case 'P':
				return c.Go(func() { panic(broken) })
			case 'G':
				return c.Go(runtime.Goexit)
			}
		}
	}})
	bystander := s.dial(t)
	says(t, bystander, "a", "a")
	before := runtime.NumGoroutine()
	for range 50 {
		for what, check := range map[string]func(error) bool{
			"p": func(err error) bool {
				var p *loop.PanicError
				return errors.Is(err, broken) && errors.As(err, &p) && bytes.Contains(p.Stack, []byte("TestHandlersThatFail"))
			},
			"g": func(err error) bool { return err != nil && strings.Contains(err.Error(), "Goexit") },
			"e": func(err error) bool { return err == broken },
			"P": func(err error) bool { return errors.Is(err, broken) },
			"G": func(err error) bool { return err != nil && strings.Contains(err.Error(), "Goexit") },
		} {
			c := s.dial(t)
			_, _ = io.WriteString(c, what)
			sockets.ExpectAll(t, c, what)
			if err := s.end(t); !check(err) {
				t.Fatalf("%s: %v", what, err)
			}
			says(t, bystander, "a", "a")
		}
	}
	condition.Await(t, fmt.Sprintf("there are %d goroutines, as before", before), func() bool { return runtime.NumGoroutine() <= before })
}

// TestErrIdle: a handler that returns ErrIdle has no coroutine until bytes come, and none is lost.
func TestErrIdle(t *testing.T) {
	var calls atomic.Int64
	s := startServer(t, &loop.Server{Handle: func(c *loop.Conn) error {
		calls.Add(1)
		n, _ := c.Context().(int)
		line, err := c.Peek(4)
		if err != nil {
			return err
		}
		if _, err := c.Next(4); err != nil {
			return err
		}
		c.SetContext(n + 1)
		fmt.Fprintf(c, "%s %d.", line, n)
		return loop.ErrIdle
	}})
	before := runtime.NumGoroutine()
	var conns []*net.TCPConn
	for range 100 {
		c := s.dial(t)
		says(t, c, "ping", "ping 0.")
		conns = append(conns, c)
	}
	condition.Await(t, fmt.Sprintf("100 idle connections have 8 goroutines at most, beside %d", before), func() bool { return runtime.NumGoroutine() <= before+8 })
	for _, c := range conns {
		says(t, c, "pongdong", "pong 1.dong 2.")
		_, _ = io.WriteString(c, "pi")
		says(t, c, "ng", "ping 3.")
		c.Close()
		if err := s.end(t); err != io.EOF {
			t.Error(err)
		}
	}
}

// TestConnGo: a handler leaves for a goroutine, where it may block, and comes back; its loop serves others
// meanwhile, and what would wait there is refused.
func TestConnGo(t *testing.T) {
	t.Parallel()

	release := make(chan bool)
	s := startServer(t, &loop.Server{Loops: 1, Handle: func(c *loop.Conn) error {
		line, err := c.Next(1)
		if err != nil {
			return err
		}
		if line[0] == 'w' {
			var refused error
			if err := c.Go(func() {
				<-release
				_, refused = c.Read(make([]byte, 1))
				_ = c.AsyncWrite([]byte("from there,"))
			}); err != nil {
				return err
			}
			if !errors.Is(refused, loop.ErrElsewhere) {
				return fmt.Errorf("a read from a goroutine: %w", refused)
			}
		}
		_, err = io.WriteString(c, " done")
		return err
	}})
	waits, other := s.dial(t), s.dial(t)
	_, _ = io.WriteString(waits, "w")
	says(t, other, "o", " done")
	must.Do(t, s.end(t))
	close(release)
	sockets.Expect(t, waits, "from there, done")
	must.Do(t, s.end(t))
}

// TestAsyncWrite: pieces of other goroutines arrive whole, those of one in order, also while the handler waits.
func TestAsyncWrite(t *testing.T) {
	t.Parallel()

	conns := make(chan *loop.Conn, 1)
	s := startServer(t, &loop.Server{Handle: func(c *loop.Conn) error {
		conns <- c
		_, err := c.Read(make([]byte, 1))
		return err
	}})
	c := s.dial(t)
	on := <-conns
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range 1000 {
				if err := on.AsyncWrite(fmt.Appendf(nil, "%d %d\n", i, j)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	var next [8]int
	lines := bufio.NewReader(c)
	for range 8000 {
		var i, j int
		if _, err := fmt.Fscanf(lines, "%d %d\n", &i, &j); err != nil || next[i] != j {
			t.Fatalf("%d of %d: %v, want %d", j, i, err, next[i])
		}
		next[i]++
	}
	all.Wait()
	c.Close()
	if err := s.end(t); err != io.EOF {
		t.Error(err)
	}
	must.Do(t, on.AsyncWrite([]byte("late")))
}

// TestSlowHandlers: a handler that holds its loop up is reported, with the place where it waits next.
func TestSlowHandlers(t *testing.T) {
	t.Parallel()

	places := make(chan string, 10)
	s := startServer(t, &loop.Server{
		SlowTime: 5 * time.Millisecond,
		Slow: func(_ *loop.Conn, took time.Duration, at string) {
			places <- fmt.Sprint(took >= 5*time.Millisecond, " ", at)
		},
		Handle: func(c *loop.Conn) error {
			if _, err := c.Next(1); err != nil {
				return err
			}
			time.Sleep(10 * time.Millisecond)
			_, err := c.Next(1)
			return err
		},
	})
	c := s.dial(t)
	_, _ = io.WriteString(c, "a")
	_, file, line, _ := runtime.Caller(0)
	want := fmt.Sprintf("true %s:%d", file, line-6)
	for condition.Receive(t, "a report of the place that waits", places) != want { // a busy machine is slow before it, too
	}
}

// TestWritersTakeTurns: a handler that writes to a client which takes everything does not keep its loop from
// others.
func TestWritersTakeTurns(t *testing.T) {
	t.Parallel()

	var stop atomic.Bool
	s := startServer(t, &loop.Server{Loops: 1, Handle: func(c *loop.Conn) error {
		b, err := c.Next(1)
		for err == nil && b[0] == 'w' && !stop.Load() {
			_, err = c.Write(make([]byte, 20_000))
		}
		return err
	}})
	c := s.dial(t)
	_, _ = io.WriteString(c, "w")
	go func() { _, _ = io.Copy(io.Discard, c) }()
	for range 20 {
		other := s.dial(t)
		_, _ = io.WriteString(other, "o")
		sockets.ExpectAll(t, other, "")
	}
	stop.Store(true)
	for range 21 {
		must.Do(t, s.end(t))
	}
}

// TestServeOptions: connections have the options of package net, so that clients that have vanished do not stay for ever.
func TestServeOptions(t *testing.T) {
	t.Parallel()

	s := startServer(t, &loop.Server{Handle: func(c *loop.Conn) error {
		var errs []error
		for _, o := range [][3]int{{sys.SOL_SOCKET, sys.SO_KEEPALIVE, 1}, {sys.IPPROTO_TCP, sys.TCP_KEEPIDLE, 15}, {sys.IPPROTO_TCP, sys.TCP_NODELAY, 1}} {
			if v, err := sys.GetsockoptInt(c.FD(), o[0], o[1]); v != o[2] {
				errs = append(errs, fmt.Errorf("option %d of %d is %d, not %d: %v", o[1], o[0], v, o[2], err))
			}
		}
		return errors.Join(errs...)
	}})
	s.dial(t)
	_ = s.end(t) // it may have been in the queue before Serve
	s.dial(t)
	must.Do(t, s.end(t))
}

// TestUnwatched: a connection that the loop cannot watch is closed, and the program is told.
func TestUnwatched(t *testing.T) {
	t.Parallel()

	var paused error
	s := &loop.Server{Paused: func(err error) { paused = err }}
	fd := must.Get(syscall.Open(t.TempDir(), syscall.O_RDONLY|syscall.O_CLOEXEC, 0))(t)
	s.Accept(newLoop(t, nil), fd) // epoll cannot wait for a directory
	must.Is(t, paused, syscall.EPERM)
}

// TestServeTwice: a server that serves refuses another listener; one that was closed or shut down refuses every
// listener. As with net/http's a listener is closed whatever the error is.
func TestServeTwice(t *testing.T) {
	t.Parallel()

	s := startServer(t, &loop.Server{Handle: echoes})
	says(t, s.dial(t), "a", "a")
	ended := &loop.Server{Handle: echoes}
	ended.Close()
	down := &loop.Server{Handle: echoes}
	must.Do(t, down.Shutdown(t.Context()))
	for _, one := range []struct {
		*loop.Server
		want error
	}{
		{s.Server, loop.ErrRunning},
		{ended, loop.ErrServerClosed},
		{ended, loop.ErrServerClosed}, // for good
		{down, loop.ErrServerClosed},
		{&loop.Server{}, loop.ErrConfig},
		{&loop.Server{Handle: echoes, Loops: -1}, loop.ErrConfig},
		{&loop.Server{Handle: echoes, SlowTime: -1}, loop.ErrConfig},
	} {
		l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
		must.Is(t, one.Serve(l), one.want)
		if err := l.Close(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("after %v the listener is open", one.want)
			l.Close()
		}
	}
	for _, none := range []net.Listener{nil, (*net.TCPListener)(nil), (*net.UnixListener)(nil)} {
		if err := s.Serve(none); !errors.Is(err, loop.ErrConfig) {
			t.Errorf("%T: %v", none, err)
		}
	}
	for fault, one := range map[string]*loop.Server{"listener": {Handle: echoes}, "Handle": {}, "SlowTime": {Handle: echoes, SlowTime: -1}} {
		l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
		if fault == "listener" {
			l = struct{ net.Listener }{l}
		}
		if err := one.Serve(l); !strings.Contains(err.Error(), ": "+fault) && !strings.Contains(err.Error(), "the "+fault) {
			t.Errorf("%s: %v", fault, err)
		}
	}
}

// shutDown calls Shutdown on a goroutine of its own.
func shutDown(ctx context.Context, s *loop.Server) (over chan error) {
	over = make(chan error, 1)
	go func() { over <- s.Shutdown(ctx) }()
	return over
}

// refused waits until nobody listens.
func refused(t *testing.T, addr string) {
	t.Helper()
	condition.Await(t, "connections are refused", func() bool {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
		}
		return err != nil
	})
}

// TestShutdown: handlers at work end as they would, and their clients get everything; idle ones are closed at once.
func TestShutdown(t *testing.T) {
	t.Parallel()

	for _, callbacks := range []bool{false, true} {
		t.Run(fmt.Sprintf("callbacks %t", callbacks), func(t *testing.T) {
			const n = 20
			s := startUnchecked(t, &loop.Server{Loops: 2, Callbacks: callbacks, Handle: func(c *loop.Conn) error {
				line, err := c.Next(4)
				if err != nil {
					return err
				}
				_, _ = fmt.Fprintf(c, "<%s>", line)
				return loop.ErrIdle
			}})
			var idle, busy []net.Conn
			for range n {
				c := s.dial(t)
				says(t, c, "idle", "<idle>")
				idle = append(idle, c)
				c = s.dial(t)
				says(t, c, "busyha", "<busy>") // and half of the next one
				busy = append(busy, c)
			}
			over, again := shutDown(t.Context(), s.Server), shutDown(t.Context(), s.Server)
			for _, c := range idle {
				sockets.ExpectAll(t, c, "")
			}
			refused(t, s.addr)
			for _, c := range busy {
				select {
				case err := <-over:
					t.Fatal("it is over, with clients: ", err)
				case err := <-again:
					t.Fatal("the second one is over, with clients: ", err)
				default:
				}
				says(t, c, "lf", "<half>")
				sockets.ExpectAll(t, c, "")
			}
			must.Do(t, errors.Join(condition.Receive(t, "Shutdown", over), condition.Receive(t, "the second Shutdown", again), s.Shutdown(t.Context())))
			must.Is(t, condition.Receive(t, "Serve", s.over), loop.ErrServerClosed)
		})
	}
}

// TestShutdownDelivers: what is pending is written before a connection is closed, also for a client that reads late.
func TestShutdownDelivers(t *testing.T) {
	t.Parallel()

	const size = 8 << 20
	s := startUnchecked(t, &loop.Server{Loops: 1, Callbacks: true, Handle: func(c *loop.Conn) error {
		if _, err := c.Next(1); err != nil {
			return err
		}
		if _, err := c.Write(make([]byte, size)); err != nil {
			return err
		}
		return loop.ErrIdle
	}})
	c := s.dial(t)
	_ = c.SetReadBuffer(64 << 10)
	_, _ = io.WriteString(c, "x")
	must.Get(io.ReadFull(c, make([]byte, 1)))(t)
	over := shutDown(t.Context(), s.Server)
	refused(t, s.addr)
	if n, err := io.Copy(io.Discard, c); n != size-1 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	must.Do(t, condition.Receive(t, "Shutdown", over))
	must.Is(t, condition.Receive(t, "Serve", s.over), loop.ErrServerClosed)
}

// TestShutdownUntil: when the context ends the rest goes on, until Close: then handlers that wait get net.ErrClosed, and
// Serve returns.
func TestShutdownUntil(t *testing.T) {
	t.Parallel()

	s := startUnchecked(t, &loop.Server{Handle: echoes})
	c := s.dial(t)
	says(t, c, "ping", "ping")
	ctx, cancel := context.WithCancelCause(t.Context())
	over := shutDown(ctx, s.Server)
	refused(t, s.addr)
	says(t, c, "ping", "ping")
	enough := errors.New("enough")
	cancel(enough)
	if err := condition.Receive(t, "Shutdown", over); err != enough {
		t.Error(err)
	}
	says(t, c, "ping", "ping")
	s.Close()
	must.Is(t, condition.Receive(t, "Serve", s.over), loop.ErrServerClosed)
	for err := s.end(t); !errors.Is(err, net.ErrClosed); err = s.end(t) { // the others have met refused
		if err != io.EOF {
			t.Fatal(err)
		}
	}
}

// TestShutdownDrain: the server decides which connection ends. A deadline that it sets wakes a handler that waits,
// and Close does.
func TestShutdownDrain(t *testing.T) {
	t.Parallel()

	for _, callbacks := range []bool{false, true} {
		t.Run(fmt.Sprintf("callbacks %t", callbacks), func(t *testing.T) {
			var late atomic.Int64
			server := &loop.Server{Loops: 1, Callbacks: callbacks}
			server.Drain = func(c *loop.Conn) {
				switch c.Context() {
				case "deadline":
					_ = c.SetReadDeadline(time.Now())
				case "close":
					_ = c.Close()
				case "stay":
				}
			}
			server.Handle = func(c *loop.Conn) error {
				for {
					line, err := c.Next(8)
					if errors.Is(err, os.ErrDeadlineExceeded) {
						late.Add(1)
						_, _ = io.WriteString(c, "bye")
						return err
					}
					if err != nil {
						return err
					}
					c.SetContext(string(bytes.TrimRight(line, " ")))
					_, _ = c.Write(line)
					if c.Context() == "end" {
						return nil
					}
				}
			}
			s := startUnchecked(t, server)
			conns := map[string]net.Conn{}
			for _, what := range []string{"deadline", "close   ", "stay    "} {
				conns[what] = s.dial(t)
				says(t, conns[what], what, what)
			}
			over := shutDown(t.Context(), server)
			for what, want := range map[string]string{"deadline": "bye", "close   ": ""} {
				sockets.ExpectAll(t, conns[what], want)
			}
			says(t, conns["stay    "], "end     ", "end     ")
			must.Do(t, condition.Receive(t, "Shutdown", over))
			must.Is(t, condition.Receive(t, "Serve", s.over), loop.ErrServerClosed)
			if late.Load() != 1 {
				t.Errorf("%d handlers were late", late.Load())
			}
		})
	}
}

// TestShutdownUnderLoad: clients that come and go while it begins are served in full, or are refused.
func TestShutdownUnderLoad(t *testing.T) {
	t.Parallel()

	s := startUnchecked(t, &loop.Server{Loops: 2, Handle: func(c *loop.Conn) error {
		line, err := c.Next(4)
		if err == nil {
			_, err = c.Write(line)
		}
		return err
	}, Ended: func(*loop.Conn, error) {}})
	var all sync.WaitGroup
	var served atomic.Int64
	for range 8 {
		all.Go(func() {
			for {
				c, err := net.Dial("tcp", s.addr)
				if err != nil {
					return
				}
				_ = c.SetDeadline(time.Now().Add(condition.Patience))
				_, _ = io.WriteString(c, "ping")
				got, _ := io.ReadAll(c) // the queue of a socket that is closed is reset
				c.Close()
				switch string(got) {
				case "ping":
					served.Add(1)
				case "":
				default:
					t.Errorf("%q", got)
				}
			}
		})
	}
	for served.Load() < 100 {
		time.Sleep(time.Millisecond)
	}
	must.Do(t, condition.Receive(t, "Shutdown", shutDown(t.Context(), s.Server)))
	all.Wait()
	must.Is(t, condition.Receive(t, "Serve", s.over), loop.ErrServerClosed)
}

// TestStuckHandlers: a handler that never waits is reported while it runs, with its stack, once; handlers that wait
// are not. It runs alone, for a report may have handlers of other servers.
func TestStuckHandlers(t *testing.T) {
	for _, callbacks := range []bool{false, true} {
		t.Run(fmt.Sprintf("callbacks %t", callbacks), func(t *testing.T) {
			reports := make(chan string, 10)
			var enough atomic.Bool
			s := startServer(t, &loop.Server{
				Loops:     1,
				Callbacks: callbacks,
				Stuck: func(took time.Duration, stacks []byte) {
					reports <- fmt.Sprint(took >= time.Second, "\n", string(stacks))
				},
				Handle: func(c *loop.Conn) error {
					if line, err := c.Next(1); err != nil || !bytes.Equal(line, []byte("s")) {
						return err
					}
					spins(&enough)
					return nil
				},
			})
			s.dial(t) // its handler waits
			_, _ = io.WriteString(s.dial(t), "s")
			if at := condition.Receive(t, "a report", reports); !strings.HasPrefix(at, "true\n") || !strings.Contains(at, "loop_test.spins") || strings.Count(at, "goroutine ") > 2 {
				t.Error(at)
			}
			enough.Store(true)
			must.Do(t, s.end(t))
			if n := len(reports); n > 0 {
				t.Errorf("%d more reports", n)
			}
		})
	}
}

//go:noinline
func spins(enough *atomic.Bool) {
	for !enough.Load() {
	}
}

// TestServeRemovesThePath: a unix socket is served like one of TCP. The path of a unix listener is removed like by package net: before its connections have
// ended, so that another process can listen there, and not a second time. SetUnlinkOnClose keeps it.
func TestServeRemovesThePath(t *testing.T) {
	t.Parallel()

	at := sockets.Dir(t) + "/s"
	for _, kept := range []bool{false, true} {
		l := must.Get(net.Listen("unix", at))(t).(*net.UnixListener)
		if kept {
			l.SetUnlinkOnClose(false)
		}
		s, over := &loop.Server{Handle: func(c *loop.Conn) error {
			if c.RemoteAddr().Network() != "unix" || c.LocalAddr().String() != at {
				return fmt.Errorf("from %v to %v", c.RemoteAddr(), c.LocalAddr())
			}
			return echoes(c)
		}}, make(chan error)
		go func() { over <- s.Serve(l) }()
		c := must.Get(net.Dial("unix", at))(t)
		says(t, c, "hello", "hello")
		down := make(chan error)
		go func() { down <- s.Shutdown(t.Context()) }()
		condition.Await(t, "the listener is closed", func() bool {
			late, err := net.Dial("unix", at)
			if err == nil {
				late.Close()
			}
			return err != nil
		})
		_, err := os.Stat(at)
		if kept {
			must.Do(t, err, os.Remove(at))
		} else {
			must.Is(t, err, os.ErrNotExist)
		}
		next := must.Get(net.Listen("unix", at))(t)
		says(t, c, "still", "still")
		c.Close()
		must.Do(t, <-down)
		must.Is(t, <-over, loop.ErrServerClosed)
		_, err = os.Stat(at)
		must.Do(t, err, next.Close())
	}
}
