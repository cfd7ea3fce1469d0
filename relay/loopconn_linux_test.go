package relay_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/relay"
)

// serveOnLoop serves on loopback until the test ends, and returns a client.
func serveOnLoop(t *testing.T, handle func(c *loop.Conn) error) (client *net.TCPConn, ended <-chan error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	ends := make(chan error, 1)
	s := &loop.Server{Loops: 1, Handle: handle, Ended: func(_ *loop.Conn, err error) { ends <- err }}
	over := make(chan error, 1)
	go func() { over <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Close()
		if err := <-over; !errors.Is(err, loop.ErrServerClosed) {
			t.Error(err)
		}
	})
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return c.(*net.TCPConn), ends
}

// TestJoinLoopConn: a connection that a loop serves is refused, also beneath a wrapper, and is as it was.
func TestJoinLoopConn(t *testing.T) {
	t.Parallel()

	far, near := tcp(t)
	_ = far.SetReadDeadline(time.Now().Add(patience))
	c, ended := serveOnLoop(t, func(c *loop.Conn) error {
		if _, err := c.Next(1); err != nil {
			return err
		}
		for _, refused := range []net.Conn{c, relay.Prefixed(c, []byte("x")), relay.Wrap(c)} {
			if _, err := relay.Join(context.Background(), near, refused); !errors.Is(err, os.ErrInvalid) {
				return errors.New("it was joined")
			}
		}
		_, err := io.WriteString(c, "still here")
		return err
	})
	_, _ = io.WriteString(c, "x")
	if got, err := io.ReadAll(c); string(got) != "still here" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := io.ReadAll(far); err != nil {
		t.Error("the other connection is not closed: ", err)
	}
}

// TestJoinDetached: a connection that was taken off its loop is joined, and spliced behind what was read ahead.
func TestJoinDetached(t *testing.T) {
	t.Parallel()

	far, near := tcp(t)
	_ = far.SetDeadline(time.Now().Add(patience))
	joined := make(chan relay.Result, 1)
	c, ended := serveOnLoop(t, func(c *loop.Conn) error {
		if _, err := c.Next(4); err != nil {
			return err
		}
		conn, ahead, err := c.Detach()
		if err != nil {
			return err
		}
		go func() {
			res, err := relay.Join(context.Background(), relay.Prefixed(conn, ahead), near)
			if err != nil {
				t.Error(err)
			}
			joined <- res
		}()
		return nil
	})
	_, _ = io.WriteString(c, "tellahead")
	got := make([]byte, 5)
	if _, err := io.ReadFull(far, got); string(got) != "ahead" || err != nil {
		t.Fatalf("%q, %v", got, err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	large := content(1, 4<<20)
	go func() { _, _ = c.Write(large); _ = c.CloseWrite() }()
	if got, err := io.ReadAll(far); string(got) != string(large) || err != nil {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	far.Close()
	if res := <-joined; res.AToB.Spliced == 0 || res.AToB.Fallbacks != (relay.Fallbacks{}) {
		t.Errorf("%+v", res.AToB)
	}
}

// TestCopyOnLoop: a copy within the handler is made by its Read and Write, and its loop serves others meanwhile.
func TestCopyOnLoop(t *testing.T) {
	t.Parallel()

	c, ended := serveOnLoop(t, func(c *loop.Conn) error {
		_, err := relay.Copy(c, c)
		return err
	})
	large := content(2, 1<<20)
	go func() { _, _ = c.Write(large); _ = c.CloseWrite() }()
	if got, err := io.ReadAll(c); string(got) != string(large) || err != nil {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
