package admin

import (
	"context"
	"os"
	"strings"
)

// A user has asked over a unix socket.
type user struct {
	uid   uint32
	pid   int32
	known bool // the kernel says who
}

// trusted reports whether a request is one of root's, or of the user as whom this process runs:
// these may read what the process may. Who asks over TCP may be anybody.
func trusted(ctx context.Context) bool {
	g, ok := ctx.Value(guestKey{}).(*guest)
	return ok && userOf(g.Conn).mayRead(os.Geteuid(), wholeNamespace())
}

// mayRead reports whether a user may read what a process of another one may. whole says that
// every user has an ID in the namespace of this process; where that is not so, one ID stands for
// all that have none.
func (u user) mayRead(process int, whole bool) bool {
	return u.known && (u.uid == 0 || int(u.uid) == process && (whole || u.uid != overflow))
}

// wholeNamespace reports whether every user has an ID here: "0 0 4294967295" is the map of the
// initial user namespace (user_namespaces(7)).
func wholeNamespace() bool {
	b, _ := os.ReadFile("/proc/self/uid_map") // without it that is not known
	f := strings.Fields(string(b))
	return len(f) == 3 && f[0] == "0" && f[2] == "4294967295"
}

// overflow is the ID of users that a user namespace does not show (user_namespaces(7)).
const overflow = 65534
