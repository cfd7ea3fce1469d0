package sockets

import (
	"errors"
	"net"
	"os"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
)

// Marked returns a connection that reads past an urgent mark: a read that comes to it with a signal pending, such as the runtime's,
// answers EAGAIN although bytes are queued behind it (net/ipv4/tcp.c, tcp_recvmsg_locked), and the runtime's poller is not told of them
// again. Its reads try again and again, for [condition.Patience]; the read deadline is theirs.
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
