package sockets

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
)

// Dial connects a TCP client that is closed when the test ends, and whose calls fail after
// [condition.Patience].
func Dial(t testing.TB, address string) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(condition.Patience)); err != nil {
		t.Fatal(err)
	}
	return c.(*net.TCPConn)
}

// ReadLine reads up to the end of a line, which it takes away, and not a byte beyond it: the
// rest stays in the socket. With an error comes the beginning of the line.
func ReadLine(c net.Conn) (string, error) {
	var line strings.Builder
	for one := make([]byte, 1); ; line.WriteByte(one[0]) {
		if _, err := c.Read(one); err != nil {
			return line.String(), err
		}
		if one[0] == '\n' {
			return line.String(), nil
		}
	}
}
