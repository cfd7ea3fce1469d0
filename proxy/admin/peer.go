package admin

import (
	"context"
	"net"
	"os"
	"strings"
	"syscall"

	"github.com/penstock/penstock/internal/sys"
)

// A user is a client of a unix socket.
type user struct {
	uid   uint32
	pid   int32
	known bool // the kernel reported the IDs
}

// trusted reports whether a request comes from root, or from the user of this process. These
// may read the files that the process may read. A client over TCP may be any user.
func trusted(ctx context.Context) bool {
	g, ok := ctx.Value(trackedConnKey{}).(*trackedConn)
	return ok && g.trusted
}

// trustedConn reports whether the client of a connection is such a user.
func trustedConn(c net.Conn) bool { return userOf(c).mayRead(os.Geteuid(), wholeNamespace()) }

// mayRead reports whether a user may read the files that a process of another user may read.
// whole means that every user has an ID in the namespace of this process. Otherwise one ID
// stands for all users without one.
func (u user) mayRead(process int, whole bool) bool {
	return u.known && (u.uid == 0 || int(u.uid) == process && (whole || u.uid != overflow))
}

// wholeNamespace reports whether every user has an ID here: "0 0 4294967295" is the map of the
// initial user namespace (user_namespaces(7)).
func wholeNamespace() bool {
	b, _ := os.ReadFile("/proc/self/uid_map") // on an error it is unknown
	f := strings.Fields(string(b))
	return len(f) == 3 && f[0] == "0" && f[2] == "4294967295"
}

// overflow is the ID of users that a user namespace does not show (user_namespaces(7)).
const overflow = 65534

// readable reports whether the client of a socket has sent something that is not read yet.
func readable(conn net.Conn) bool {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	queued := 0
	_ = raw.Control(func(fd uintptr) { queued, _ = sys.FIONREAD(int(fd)) }) // an error means that it is closed
	return queued > 0
}

// userOf returns the client of a unix socket.
func userOf(conn net.Conn) (u user) {
	c, ok := conn.(syscall.Conn)
	if !ok || conn.LocalAddr().Network() != "unix" {
		return user{}
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return user{}
	}
	_ = raw.Control(func(fd uintptr) { // an error means that it is closed
		peer, err := sys.PeerCredentials(int(fd))
		u = user{uid: peer.UID, pid: peer.PID, known: err == nil}
	})
	return u
}
