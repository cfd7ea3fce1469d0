package uring

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/must"
)

// TestWaysEcho: each way that is measured echoes, for several clients at a time, and serves the next one
// after they have left.
func TestWaysEcho(t *testing.T) {
	open(t, 8, 8) // or skips
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			if limit, err := sys.RlimitMemlock(); w.memory && (err != nil || limit < 2*places*bufferSize) {
				t.Skipf("needs memory that is locked: RLIMIT_MEMLOCK is %d, %v", limit, err)
			}
			addr, fd := listen(t, "127.0.0.1")
			s := newServer(t, fd, w.way, false)
			ended := make(chan error, 1)
			go func() { ended <- s.run() }()
			for range 2 {
				echoTo(t, addr)
			}
			s.end()
			must.Do(t, <-ended)
		})
	}
}

// echoTo has four clients served. It fails the test without ending its goroutine.
func echoTo(t *testing.T, addr string) {
	t.Helper()
	var conns [4]net.Conn
	for i := range conns {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		conns[i] = c
	}
	for i, c := range conns {
		echoes(t, c, bytes.Repeat([]byte{byte(i), byte(i + 1)}, 1000*(i+1)))
		c.Close()
	}
}

func echoes(t *testing.T, c net.Conn, message []byte) {
	t.Helper()
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	for range 3 {
		if _, err := c.Write(message); err != nil {
			t.Error(err)
			return
		}
		got := make([]byte, len(message))
		if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, message) {
			t.Errorf("%d bytes came back as others, or not: %v", len(message), err)
			return
		}
	}
}
