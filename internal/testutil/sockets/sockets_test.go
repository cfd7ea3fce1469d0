package sockets_test

import (
	"io"
	"net"
	"testing"

	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/sockets"
)

func TestMain(m *testing.M) { leak.Main(m) }

func TestPairs(t *testing.T) {
	t.Run("tcp", func(t *testing.T) {
		c, s := sockets.TCPPair(t)
		exchange(t, c, s)
	})
	t.Run("unix", func(t *testing.T) {
		c, s := sockets.UnixPair(t)
		exchange(t, c, s)
	})
}

type halfCloser interface {
	net.Conn
	CloseWrite() error
}

func exchange(t *testing.T, c, s halfCloser) {
	for _, ends := range [][2]halfCloser{{c, s}, {s, c}} {
		if _, err := ends[0].Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		if err := ends[0].CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(ends[1]); err != nil || string(b) != "hello" {
			t.Fatalf("read %q, %v", b, err)
		}
	}
}

func TestFD(t *testing.T) {
	c, s := sockets.TCPPair(t)
	if a, b := sockets.FD(t, c), sockets.FD(t, s); a == b || a < 3 || b < 3 {
		t.Fatalf("descriptors %d and %d", a, b)
	}
}
