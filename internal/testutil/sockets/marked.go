package sockets

import (
	"errors"
	"net"
	"os"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
)

// Marked returns a connection that reads past an urgent mark. A read that reaches the mark while a signal is pending,
// such as the runtime's, returns EAGAIN although bytes are queued behind the mark (net/ipv4/tcp.c, tcp_recvmsg_locked),
// and the runtime's poller does not report these bytes again. So reads of the connection are repeated for
// [condition.Patience]; they change the read deadline.
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
