package loop_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/loop"
)

// TestDetach: a handler gives its connection away, with the bytes that it has read ahead, and all that was written
// before has gone.
func TestDetach(t *testing.T) {
	t.Parallel()

	const size = 4 << 20
	for _, callbacks := range []bool{false, true} {
		t.Run(fmt.Sprintf("callbacks %t", callbacks), func(t *testing.T) {
			s := startServer(t, &loop.Server{Loops: 1, Callbacks: callbacks, Handle: func(c *loop.Conn) error {
				if c.Context() == nil {
					if _, err := c.Next(4); err != nil {
						return err
					}
					c.SetContext(true)
					if _, err := c.Write(make([]byte, size)); err != nil {
						return err
					}
				}
				conn, ahead, err := c.Detach()
				if err != nil {
					return err // ErrIdle, while much is pending
				}
				if _, err := c.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
					return fmt.Errorf("a read after Detach: %w", err)
				}
				if err := c.Go(func() {}); err == nil {
					return errors.New("Go after Detach")
				}
				go func() {
					defer conn.Close()
					_ = conn.SetDeadline(time.Now().Add(patience))
					_, _ = io.Copy(conn, io.MultiReader(bytes.NewReader(ahead), conn))
				}()
				return errors.New("detached")
			}})
			bystander := s.dial(t)
			c := s.dial(t)
			_ = c.SetReadBuffer(64 << 10)
			_, _ = io.WriteString(c, "pingahead")
			if n, err := io.CopyN(io.Discard, c, size); err != nil {
				t.Fatal(n, err)
			}
			// A callback is called again when bytes come.
			says(t, c, ", and more", "ahead, and more")
			if err := s.end(t); err == nil || err.Error() != "detached" {
				t.Error(err)
			}
			says(t, c, "still", "still")
			c.Close()
			_ = bystander.CloseWrite()
			if err := s.end(t); err != io.EOF {
				t.Error(err)
			}
		})
	}
}

// TestDetachLeavesTheLoop: a detached connection has nothing to do with its server any more.
func TestDetachLeavesTheLoop(t *testing.T) {
	t.Parallel()

	given := make(chan net.Conn, 1)
	s := startUnchecked(t, &loop.Server{Loops: 1, Handle: func(c *loop.Conn) error {
		_ = c.SetDeadline(time.Now().Add(time.Millisecond))
		conn, _, err := c.Detach()
		if err != nil {
			return err
		}
		given <- conn
		return loop.ErrIdle
	}})
	c := s.dial(t)
	conn := <-given
	defer conn.Close()
	if err := s.end(t); err != nil {
		t.Error(err)
	}
	s.Close()
	if err := <-s.over; !errors.Is(err, loop.ErrServerClosed) {
		t.Error(err)
	}
	_, _ = io.WriteString(c, "ping")
	hears(t, conn, "ping")
	_, _ = io.WriteString(conn, "pong")
	hears(t, c, "pong")
}

// TestEndedKnowsAddresses: both addresses are known when a connection ends, however it does.
func TestEndedKnowsAddresses(t *testing.T) {
	t.Parallel()

	type end struct{ local, remote net.Addr }
	ends := make(chan end, 1)
	s := startServer(t, &loop.Server{Handle: echoes, Ended: func(c *loop.Conn, _ error) {
		if _, err := c.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
			t.Errorf("a write: %v", err)
		}
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Error("a read")
		}
		if err := c.Close(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("a close: %v", err)
		}
		ends <- end{c.LocalAddr(), c.RemoteAddr()}
	}})
	for _, reset := range []bool{false, true} {
		c := s.dial(t)
		says(t, c, "a", "a")
		if reset {
			_ = c.SetLinger(0)
		}
		local := c.LocalAddr().String()
		c.Close()
		e := <-ends
		if e.local == nil || e.local.String() != s.addr || e.remote.String() != local {
			t.Errorf("%v from %v, want %s from %s", e.local, e.remote, s.addr, local)
		}
	}
}

// TestBufferFull: more than 64 KiB cannot be looked at, and nothing is lost by the attempt.
func TestBufferFull(t *testing.T) {
	t.Parallel()

	const most = 65536
	s := startServer(t, &loop.Server{Handle: func(c *loop.Conn) error {
		if _, err := c.Peek(most + 1); !errors.Is(err, loop.ErrBufferFull) || !strings.Contains(err.Error(), "65536") {
			return fmt.Errorf("Peek: %w", err)
		}
		if _, err := c.Next(most + 1); !errors.Is(err, loop.ErrBufferFull) {
			return fmt.Errorf("Next: %w", err)
		}
		if b, err := c.Peek(most); len(b) < most || err != nil {
			return fmt.Errorf("%d bytes: %w", len(b), err)
		}
		if err := c.More(); !errors.Is(err, loop.ErrBufferFull) {
			return fmt.Errorf("More: %w", err)
		}
		b, err := c.Next(most)
		if err == nil {
			_, err = c.Write(b)
		}
		return err
	}})
	c := s.dial(t)
	text := bytes.Repeat([]byte("0123456789abcdef"), most/16)
	_, _ = c.Write(text)
	hears(t, c, string(text))
	if err := s.end(t); err != nil {
		t.Error(err)
	}
}
