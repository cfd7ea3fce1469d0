package worker_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// One turn of a loop lists no more than so many clients, wherever they are.
func TestListingIsBounded(t *testing.T) {
	t.Parallel()

	const clients = 3*worker.ListMost + 1
	r := newRig(t, func(c *worker.Config) { c.Loops, c.MaxConnections = 1, 2*clients })
	r.serve(t)
	var stay []net.Conn
	for range clients {
		leaves := r.dial(t)
		talk(t, leaves)
		stay = append(stay, r.dial(t))
		talk(t, stay[len(stay)-1])
		leaves.Close()
	}
	eventually(t, func() bool { return r.Active() == clients })
	parts, told := r.ListParts()
	if told != clients || parts < (clients+worker.ListMost-1)/worker.ListMost {
		t.Errorf("%d clients in %d parts, want %d in at least %d", told, parts, clients, clients/worker.ListMost)
	}
	for _, c := range stay {
		c.Close()
	}
	eventually(t, func() bool { return r.Active() == 0 })
	if parts, told := r.ListParts(); told != 0 || parts > clients/worker.ListLooks+1 {
		t.Errorf("%d clients in %d parts after all have left", told, parts)
	}
}

// A unix socket has its path for an address, and @ if it has none.
func TestListingOfUnixSockets(t *testing.T) {
	t.Parallel()

	r := newRigAt(t, "unix", sockets.Dir(t)+"/proxy", nil)
	r.serve(t)
	talk(t, r.dial(t))
	n := 0
	for s := range r.Sessions(context.Background(), new(worker.Query)) {
		if n++; !strings.HasPrefix(s.Client, fmt.Sprintf("unix:uid=%d,gid=%d,pid=", os.Geteuid(), os.Getegid())) || s.State != worker.Joined {
			t.Errorf("the listing has %+v", s)
		}
	}
	if n != 1 {
		t.Errorf("%d clients are listed", n)
	}
}
