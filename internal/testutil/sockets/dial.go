package sockets

import (
	"net"
	"testing"
	"time"
)

// dialPatience is for how long a connection of Dial may be used.
const dialPatience = time.Minute

// Dial connects a TCP client that is closed when the test ends, and whose calls fail after
// a minute.
func Dial(t testing.TB, address string) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(dialPatience)); err != nil {
		t.Fatal(err)
	}
	return c.(*net.TCPConn)
}
