package loop_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/loop"
)

// shutDown calls Shutdown on a goroutine of its own.
func shutDown(ctx context.Context, s *loop.Server) (over chan error) {
	over = make(chan error, 1)
	go func() { over <- s.Shutdown(ctx) }()
	return over
}

func receives(t *testing.T, from chan error, what string) error {
	t.Helper()
	select {
	case err := <-from:
		return err
	case <-time.After(patience):
		t.Fatal("no end: ", what)
	}
	return nil
}

// refused waits until nobody listens.
func refused(t *testing.T, addr string) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			return
		}
		c.Close()
		if time.Now().After(deadline) {
			t.Fatal("connections are still accepted")
		}
	}
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
			over := shutDown(t.Context(), s.Server)
			for _, c := range idle {
				if got, err := io.ReadAll(c); len(got) > 0 || err != nil {
					t.Errorf("%q, %v", got, err)
				}
			}
			refused(t, s.addr)
			for i, c := range busy {
				select {
				case err := <-over:
					t.Fatal("it is over, with clients: ", err)
				default:
				}
				says(t, c, "lf", "<half>")
				if got, err := io.ReadAll(c); len(got) > 0 || err != nil {
					t.Errorf("%d: %q, %v", i, got, err)
				}
			}
			if err := receives(t, over, "Shutdown"); err != nil {
				t.Error(err)
			}
			if err := receives(t, s.over, "Serve"); !errors.Is(err, loop.ErrServerClosed) {
				t.Error(err)
			}
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
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	over := shutDown(t.Context(), s.Server)
	refused(t, s.addr)
	if n, err := io.Copy(io.Discard, c); n != size-1 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	if err := receives(t, over, "Shutdown"); err != nil {
		t.Error(err)
	}
	if err := receives(t, s.over, "Serve"); !errors.Is(err, loop.ErrServerClosed) {
		t.Error(err)
	}
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
	if err := receives(t, over, "Shutdown"); err != enough {
		t.Error(err)
	}
	says(t, c, "ping", "ping")
	s.Close()
	if err := receives(t, s.over, "Serve"); !errors.Is(err, loop.ErrServerClosed) {
		t.Error(err)
	}
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
				if got, err := io.ReadAll(conns[what]); string(got) != want || err != nil {
					t.Errorf("%s: %q, %v", what, got, err)
				}
			}
			says(t, conns["stay    "], "end     ", "end     ")
			if err := receives(t, over, "Shutdown"); err != nil {
				t.Error(err)
			}
			if err := receives(t, s.over, "Serve"); !errors.Is(err, loop.ErrServerClosed) {
				t.Error(err)
			}
			if late.Load() != 1 {
				t.Errorf("%d handlers were late", late.Load())
			}
		})
	}
}

// TestShutdownAtAnyTime: two at once, and one after the end, return nil.
func TestShutdownAtAnyTime(t *testing.T) {
	t.Parallel()

	s := &loop.Server{Handle: echoes}
	one := startUnchecked(t, s)
	says(t, one.dial(t), "a", "a")
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if err := s.Shutdown(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	refused(t, one.addr)
	s.Close()
	all.Wait()
	if err := receives(t, one.over, "Serve"); !errors.Is(err, loop.ErrServerClosed) {
		t.Error(err)
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
				_ = c.SetDeadline(time.Now().Add(patience))
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
	if err := receives(t, shutDown(t.Context(), s.Server), "Shutdown"); err != nil {
		t.Error(err)
	}
	all.Wait()
	if err := receives(t, s.over, "Serve"); !errors.Is(err, loop.ErrServerClosed) {
		t.Error(err)
	}
}
