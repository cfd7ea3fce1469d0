package loop_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/loop"
)

// answers is a handler that serves both ways: it answers lines of four bytes.
func answers(c *loop.Conn) error {
	for {
		line, err := c.Next(4)
		if err != nil {
			return err
		}
		if string(line) == "quit" {
			return nil
		}
		if _, err := fmt.Fprintf(c, "<%s>", line); err != nil {
			return err
		}
	}
}

// TestCallbacks: a handler is called when bytes come, and not while there are no more. What it left is there
// at the next call.
func TestCallbacks(t *testing.T) {
	var calls atomic.Int64
	s := startServer(t, &loop.Server{Callbacks: true, Handle: func(c *loop.Conn) error {
		calls.Add(1)
		return answers(c)
	}})
	before := runtime.NumGoroutine()
	c := s.dial(t)
	says(t, c, "ping", "<ping>")
	says(t, c, "onetwo--", "<onet><wo-->")
	_, _ = io.WriteString(c, "pa")
	says(t, s.dial(t), "else", "<else>")
	count := calls.Load()
	for range 100 {
		says(t, s.dial(t), "else", "<else>") // the loops turn
	}
	if more := calls.Load() - count; more > 201 {
		t.Errorf("%d calls for 100 connections, and half a line of another one", more)
	}
	says(t, c, "rt", "<part>")
	if n := runtime.NumGoroutine(); n > before+8 {
		t.Errorf("%d goroutines, %d before", n, before)
	}
	says(t, c, "quit", "")
	sockets.ExpectAll(t, c, "")
}

// TestCallbacksThatEnd: the end of file is delivered once, after the bytes before it. An error of the handler,
// a panic and an end of file that it ignores close the connection alone.
func TestCallbacksThatEnd(t *testing.T) {
	t.Parallel()

	broken := errors.New("broken")
	s := startServer(t, &loop.Server{Loops: 1, Callbacks: true, Handle: func(c *loop.Conn) error {
		b := bytes.Clone(c.Buffered())
		if len(b) == 0 {
			return loop.ErrIdle // at first, and at the end of file
		}
		if _, err := c.Next(len(b)); err != nil {
			return err
		}
		_, _ = c.Write(b)
		switch string(b) {
		case "p":
			panic(broken)
		case "e":
			return broken
		case "g":
			if err := c.Go(func() {}); !errors.Is(err, loop.ErrNoCoroutine) {
				return fmt.Errorf("Go: %w", err)
			}
			if _, err := c.Read(b); err != loop.ErrIdle {
				return fmt.Errorf("Read: %w", err)
			}
		}
		return loop.ErrIdle
	}})
	bystander := s.dial(t)
	for what, want := range map[string]error{"p": broken, "e": broken, "g": io.EOF, "x": io.EOF} {
		c := s.dial(t)
		_, _ = io.WriteString(c, what)
		_ = c.CloseWrite()
		sockets.ExpectAll(t, c, what)
		if err := s.end(t); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
		says(t, bystander, "a", "a")
	}
}

// TestCallbackWrites: a Write never waits. A client that does not read is not read from either, and one that
// is 16 MiB behind is given up.
func TestCallbackWrites(t *testing.T) {
	t.Parallel()

	const piece = 1 << 20
	var calls atomic.Int64
	s := startServer(t, &loop.Server{Loops: 1, Callbacks: true, Handle: func(c *loop.Conn) error {
		calls.Add(1)
		b, err := c.Next(1)
		if err != nil {
			return err
		}
		pieces := 8
		if b[0] == 'm' {
			pieces = 64
		}
		for range pieces {
			n, err := c.Write(make([]byte, piece))
			if (n < piece) != (err != nil) {
				t.Errorf("%d bytes of %d, and the error %v", n, piece, err)
			}
			if err != nil {
				return err
			}
		}
		return loop.ErrIdle
	}})
	c, other := s.dial(t), s.dial(t)
	_ = other.SetReadBuffer(64 << 10) // or the kernel takes what is meant to be pending
	_, _ = io.WriteString(c, "ss")
	_, _ = io.WriteString(other, "s")
	must.Get(io.ReadFull(other, make([]byte, 8*piece)))(t)
	must.Get(io.ReadFull(c, make([]byte, 16*piece)))(t)
	_, _ = io.WriteString(other, "m")
	if err := s.end(t); err == nil || !strings.Contains(err.Error(), "16 MiB are pending") {
		t.Error(err)
	}
	if _, err := io.Copy(io.Discard, other); err == nil {
		t.Error("a client that lacks bytes sees a clean end")
	}
}

// TestCloseTime: a client that does not read what is pending after the end of its handler has ten seconds, even if it
// goes on sending.
func TestCloseTime(t *testing.T) {
	t.Parallel()

	var clock atomic.Int64
	clock.Store(1)
	on := make(chan *loop.Loop, 1)
	s := startServer(t, &loop.Server{
		Loops: 1, Callbacks: true, Config: &loop.Config{Now: clock.Load},
		Handle: func(c *loop.Conn) error {
			on <- c.Loop()
			_, err := c.Write(make([]byte, 15<<20))
			return err
		},
	})
	c := s.dial(t)
	advance := advancer(t, &clock, condition.Receive(t, "a handler", on))
	advance(9 * time.Second)
	must.Get(io.WriteString(c, "more"))(t)
	condition.Await(t, "the server has it", func() bool {
		n, err := sys.SIOCOUTQ(sockets.FD(t, c))
		return n == 0 && err == nil
	})
	advance(0)
	if len(s.ended) > 0 {
		t.Error("it has ended after nine seconds")
	}
	if advance(time.Second + time.Millisecond); len(s.ended) == 0 {
		t.Error("it goes on after ten seconds")
	}
}

// advancer returns a function that advances the clock of a loop, and waits for whole turns after that.
func advancer(t *testing.T, clock *atomic.Int64, l *loop.Loop) func(time.Duration) {
	turn := func() {
		for range 3 {
			turned := make(chan struct{})
			must.Do(t, l.Post(func() { close(turned) }))
			<-turned
		}
	}
	turn() // the handler has returned
	return func(d time.Duration) {
		clock.Add(int64(d))
		turn()
	}
}

// TestCloseAfterTheWriteDeadline: bytes that a Write has taken are delivered although the write deadline has passed at
// the close, as always at that of a tls.Conn.
func TestCloseAfterTheWriteDeadline(t *testing.T) {
	t.Parallel()

	for _, closes := range []bool{true, false} {
		var clock atomic.Int64
		clock.Store(1)
		on, written := make(chan *loop.Loop, 1), 0
		s := startServer(t, &loop.Server{
			Loops: 1, Config: &loop.Config{Now: clock.Load},
			Handle: func(c *loop.Conn) error {
				for c.Pending() < 32<<10 { // the kernel takes nothing more
					n, err := c.Write(make([]byte, 4<<10))
					if written += n; err != nil {
						return err
					}
				}
				_ = c.SetWriteDeadline(time.Now())
				on <- c.Loop()
				if closes {
					return c.Close()
				}
				return nil
			},
		})
		c := s.dial(t)
		advance := advancer(t, &clock, condition.Receive(t, "a handler", on))
		advance(time.Second)
		if got, err := io.Copy(io.Discard, c); got != int64(written) || err != nil {
			t.Errorf("%d of %d bytes, %v", got, written, err)
		}
		must.Do(t, s.end(t))
	}
}

// TestIdleHandlerTakesNothing: a client cannot fill the memory of a handler that waits for the rest of something.
func TestIdleHandlerTakesNothing(t *testing.T) {
	t.Parallel()

	for _, callbacks := range []bool{false, true} {
		var most atomic.Int64
		s := startServer(t, &loop.Server{Callbacks: callbacks, Handle: func(c *loop.Conn) error {
			most.Store(max(most.Load(), int64(len(c.Buffered()))))
			return loop.ErrIdle
		}})
		c := s.dial(t)
		if _, err := c.Write(make([]byte, 32<<20)); err == nil {
			t.Errorf("callbacks %t: the server takes all", callbacks)
			continue
		}
		if err := s.end(t); !errors.Is(err, loop.ErrBufferFull) || most.Load() != 65536 {
			t.Errorf("callbacks %t: %v with %d bytes", callbacks, err, most.Load())
		}
	}
}

// TestIdleDeadline: a read deadline ends the wait of a handler that has returned ErrIdle, in either way of
// calling it, also one that has passed by then.
func TestIdleDeadline(t *testing.T) {
	t.Parallel()

	for _, in := range []time.Duration{20 * time.Millisecond, -time.Second} {
		for _, callbacks := range []bool{false, true} {
			s := startServer(t, &loop.Server{Callbacks: callbacks, Handle: func(c *loop.Conn) error {
				if c.Context() == nil {
					c.SetContext(true)
					_ = c.SetReadDeadline(time.Now().Add(in))
					return loop.ErrIdle
				}
				_, err := c.Next(1)
				return err
			}})
			c := s.dial(t)
			sockets.ExpectAll(t, c, "")
			if err := s.end(t); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("in %v, callbacks %t: %v", in, callbacks, err)
			}
		}
	}
}

// TestBehindWhileItWaits: a connection that AsyncWrite gives up is closed while its handler waits for bytes.
func TestBehindWhileItWaits(t *testing.T) {
	t.Parallel()

	for _, callbacks := range []bool{false, true} {
		conns := make(chan *loop.Conn, 1)
		s := startServer(t, &loop.Server{Callbacks: callbacks, Handle: func(c *loop.Conn) error {
			if c.Context() == nil {
				c.SetContext(true)
				conns <- c
			}
			_, err := c.Next(1)
			return err
		}})
		_ = s.dial(t).SetReadBuffer(64 << 10)
		on := <-conns
		for range 32 {
			must.Do(t, on.AsyncWrite(make([]byte, 1<<20)))
		}
		if err := s.end(t); err == nil {
			t.Errorf("callbacks %t: it ended well", callbacks)
		}
	}
}

// TestCallbackGoexit: runtime.Goexit in a callback ends the server, which says so.
func TestCallbackGoexit(t *testing.T) {
	t.Parallel()

	s := startUnchecked(t, &loop.Server{Loops: 2, Callbacks: true, Handle: func(c *loop.Conn) error {
		if len(c.Buffered()) > 0 {
			runtime.Goexit()
		}
		return loop.ErrIdle
	}})
	_, _ = io.WriteString(s.dial(t), "x")
	if err := <-s.over; err == nil || !strings.Contains(err.Error(), "Goexit") {
		t.Error(err)
	}
}

// TestTick: each loop has its ticks, at the times that they ask for.
func TestTick(t *testing.T) {
	t.Parallel()

	ticks := make(chan *loop.Loop, 100)
	startServer(t, &loop.Server{Loops: 2, Handle: answers, Tick: func(l *loop.Loop) time.Duration {
		select {
		case ticks <- l:
		default:
		}
		return time.Millisecond
	}})
	seen := map[*loop.Loop]int{}
	for again := 0; len(seen) < 2 || again < 2; {
		l := condition.Receive(t, "a tick", ticks)
		if seen[l]++; seen[l] == 2 {
			again++
		}
	}
}

// TestDeadlinesOfCallbacks: a deadline ends a client that never reads, whichever of the two it is, and whatever is
// pending; and a handler that returns ErrIdle after the read deadline is called once for it.
func TestDeadlinesOfCallbacks(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		set     func(c *loop.Conn, t time.Time) error
		pending int
		ignores bool
	}{
		"both":              {(*loop.Conn).SetDeadline, 8 << 20, false},
		"of reading":        {(*loop.Conn).SetReadDeadline, 8 << 20, false},
		"of writing":        {(*loop.Conn).SetWriteDeadline, 8 << 20, false},
		"little is pending": {(*loop.Conn).SetDeadline, 1 << 10, false},
		"ignored":           {(*loop.Conn).SetReadDeadline, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			var calls atomic.Int64
			s := startServer(t, &loop.Server{Loops: 1, Callbacks: true, Handle: func(c *loop.Conn) error {
				calls.Add(1)
				if c.Context() == nil {
					c.SetContext(true)
					_, _ = c.Write(make([]byte, test.pending))
					_ = test.set(c, time.Now().Add(50*time.Millisecond))
					_ = c.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
				}
				if test.ignores {
					return loop.ErrIdle
				}
				_, err := c.Next(2)
				return err
			}})
			if c, err := net.Dial("tcp", s.addr); err == nil { // otherwise the deadline was over before Dial returned
				defer c.Close()
				_ = c.(*net.TCPConn).SetReadBuffer(4 << 10)
				_, _ = io.WriteString(c, "x")
			}
			must.Is(t, s.end(t), os.ErrDeadlineExceeded)
			if n := calls.Load(); n > 10 {
				t.Errorf("%d calls", n)
			}
		})
	}
}
