package sockets_test

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/sockets"
)

func TestWhoDoesNotAnswer(t *testing.T) {
	if _, err := net.Dial("tcp", sockets.Refusing(t)); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("refusing: %v", err)
	}
	_, err := net.DialTimeout("tcp", sockets.Silent(t), 50*time.Millisecond)
	if late, ok := err.(net.Error); !ok || !late.Timeout() { // os.ErrDeadlineExceeded, or that of a context
		t.Errorf("silent: %v", err)
	}
}

// TestPort: who asks for the port may listen there, as often as it likes, and nobody else has
// it: the kernel gives ports under the conditions under which it lets one be bound without
// SO_REUSEADDR, and to connections under stricter ones.
func TestPort(t *testing.T) {
	port := sockets.Port(t)
	if _, err := net.Dial("tcp", "127.0.0.1:"+port); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("before somebody listens: %v", err)
	}
	for _, host := range []string{"127.0.0.1", "", "0.0.0.0", "127.0.0.2"} {
		given := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
			return c.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 0) })
		}}
		if l, err := given.Listen(t.Context(), "tcp", host+":"+port); err == nil {
			t.Errorf("%q: somebody else has the port", host)
			l.Close()
		}
		l, err := net.Listen("tcp", host+":"+port)
		if err != nil {
			t.Fatal(err)
		}
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		l.Close()
	}
}

func TestServeEndsWithTheTest(t *testing.T) {
	var c net.Conn
	t.Run("a test", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		sockets.Serve(t, l, func(c net.Conn) { _, _ = io.CopyN(c, c, 5) })
		if c, err = net.Dial("tcp", l.Addr().String()); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		// What has not been accepted yet the end would reset.
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	})
	defer c.Close()
	if b, err := io.ReadAll(c); string(b) != "ello" || err != nil {
		t.Errorf("read %q, %v", b, err)
	}
	if _, err := net.Dial("tcp", c.RemoteAddr().String()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("after the test: %v", err)
	}
}
