package sockets

import (
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/must"
)

// Dial connects a TCP client. Its calls fail after [condition.Patience], and it is closed when the test ends.
func Dial(t testing.TB, address string) *net.TCPConn {
	t.Helper()
	c := must.Get(net.Dial("tcp", address))(t)
	t.Cleanup(func() { c.Close() })
	must.Do(t, c.SetDeadline(time.Now().Add(condition.Patience)))
	return c.(*net.TCPConn)
}

// ReadLine reads a line and removes its end, and reads no byte beyond it: the rest stays in the socket. With an
// error it returns the beginning of the line.
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

// Marked returns a connection that reads past an urgent mark. A read that reaches the mark while a signal is
// pending, such as one of the runtime's, returns EAGAIN although bytes are queued behind the mark
// (net/ipv4/tcp.c, tcp_recvmsg_locked), and the runtime's poller does not report these bytes again. So reads
// are repeated for [condition.Patience]. They change the read deadline.
func Marked(c net.Conn) net.Conn { return marked{c} }

type marked struct{ net.Conn }

func (m marked) Read(b []byte) (n int, err error) {
	for end := time.Now().Add(condition.Patience); ; {
		_ = m.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		n, err = m.Conn.Read(b)
		if !errors.Is(err, os.ErrDeadlineExceeded) || time.Now().After(end) {
			return n, err
		}
	}
}
