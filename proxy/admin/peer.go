package admin

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/penstock/penstock/internal/sys"
)

// A user is a client of a unix socket.
type user struct {
	uid, gid uint32
	groups   []uint32 // supplementary ones; nil also if they are not known
	pid      int32
	known    bool // the kernel reported the IDs
}

// String returns the user and the process for logs: uid=1000 pid=4711. A process that the namespace of
// this one does not show has no number.
func (u user) String() string {
	text := fmt.Sprintf("uid=%d", u.uid)
	if u.pid > 0 {
		text += fmt.Sprintf(" pid=%d", u.pid)
	}
	return text
}

// trusted reports whether it is root, or the user of this process. These may change everything, and read
// the files that the process may read.
func (u user) trusted() bool { return u.mayRead(os.Geteuid(), wholeNamespace("uid")) }

// in reports whether a user is in a group; nil is none. One ID may stand for all groups that the
// namespace of this process does not show.
func (u user) in(group *uint32) bool {
	return group != nil && u.among(*group, wholeNamespace("gid"))
}

// among is in, where whole means that every group has an ID of its own here.
func (u user) among(group uint32, whole bool) bool {
	return u.known && (group != overflow || whole) && (u.gid == group || slices.Contains(u.groups, group))
}

// mayRead reports whether a user may read the files that a process of another user may read.
// whole means that every user has an ID in the namespace of this process. Otherwise one ID
// stands for all users without one.
func (u user) mayRead(process int, whole bool) bool {
	return u.known && (u.uid == 0 || int(u.uid) == process && (whole || u.uid != overflow))
}

// wholeNamespace reports whether every user (uid) or group (gid) has an ID here: "0 0 4294967295" is the
// map of the initial user namespace (user_namespaces(7)).
func wholeNamespace(kind string) bool {
	b, _ := os.ReadFile("/proc/self/" + kind + "_map") // on an error it is unknown
	f := strings.Fields(string(b))
	return len(f) == 3 && f[0] == "0" && f[2] == "4294967295"
}

// overflow is the ID of users and groups that a user namespace does not show (user_namespaces(7)).
const overflow = 65534

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
		u = user{uid: peer.UID, gid: peer.GID, pid: peer.PID, known: err == nil}
		if groups, err := sys.PeerGroups(int(fd)); err == nil && u.known {
			u.groups = groups
		}
	})
	return u
}
