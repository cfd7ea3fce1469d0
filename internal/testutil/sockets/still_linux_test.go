package sockets_test

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/sockets"
)

// TestMoving: a deadline that has passed ends no read of a connection on which bytes come.
func TestMoving(t *testing.T) {
	c := sockets.Dial(t, sockets.Server(t, func(c net.Conn) { _, _ = io.WriteString(c, "bytes") }))
	if err := c.SetDeadline(time.Now().Add(-time.Second)); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(sockets.Moving{TCPConn: c}); err != nil || string(got) != "bytes" {
		t.Errorf("%q, %v", got, err)
	}
	// The end of file counts as a byte.
	if a := sockets.Account(c); !strings.Contains(a, ", 6 bytes received, ") || !strings.Contains(a, "tcp_mem ") {
		t.Error(a)
	}
	c.Close()
	if a := sockets.Account(c); !strings.Contains(a, "closed") {
		t.Error(a)
	}
}
