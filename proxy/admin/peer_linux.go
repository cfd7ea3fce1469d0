package admin

import (
	"net"
	"syscall"

	"github.com/penstock/penstock/internal/sys"
)

// userOf returns who has connected to a unix socket.
func userOf(conn net.Conn) (u user) {
	c, ok := conn.(syscall.Conn)
	if !ok || conn.LocalAddr().Network() != "unix" {
		return user{}
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return user{}
	}
	_ = raw.Control(func(fd uintptr) { // else it is closed
		peer, err := sys.PeerCredentials(int(fd))
		u = user{uid: peer.UID, pid: peer.PID, known: err == nil}
	})
	return u
}
