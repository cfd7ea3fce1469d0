package server_test

import (
	"fmt"
	"net/netip"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/heap"
)

// TestIdleSessionWithLimits: a session that rests under an idle timeout and a limit of its source's connections takes less
// than 400 bytes of the process, beside its share of the last slab and the last chunk of the loop's table.
func TestIdleSessionWithLimits(t *testing.T) {
	const first, n = 1000, 2500
	up, at := queue(t, n)
	defer syscall.Close(up)
	r := startWith(t, 2*n, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u, timeouts: {idle: 1h}, limits: {connections: 100000, per_source: 100000}}]
upstreams: [{name: u, endpoints: [%q], health_check: off}]`, at))
	to := netip.MustParseAddrPort(r.At("l"))
	clients := make([]int, 0, first+n)
	defer func() {
		for _, fd := range clients {
			syscall.Close(fd)
		}
	}()
	joined := func(n int64) {
		r.Until("all are joined", func() bool {
			return r.Status().Upstreams[0].Endpoints[0].Active == n
		})
	}
	join := func(n int) {
		for i := range n {
			fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			if clients = append(clients, fd); i%50 == 0 { // few are on the way at once, for memory of those is kept
				joined(int64(len(clients) - 1))
			}
			if err := syscall.Connect(fd, &syscall.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}); err != nil {
				t.Fatal(err)
			}
		}
	}
	join(first)
	joined(first)
	before := heap.InUse()
	join(n)
	joined(first + n)
	each := (heap.InUse() - before) / n
	t.Logf("%d bytes for each of %d", each, n)
	if most := 400 + share/n; each > most {
		t.Errorf("%d bytes for each session, want at most %d", each, most)
	}
}

// share is the size of a slab and a chunk of two loops.
const share = 2 * (64<<10 + 48<<10)

// queue is a listening socket that takes n connections which nothing accepts, so that they cost the process nothing.
func queue(t *testing.T, n int) (fd int, at string) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err == nil {
		err = syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	}
	if err == nil {
		err = syscall.Listen(fd, 2*n)
	}
	if err != nil {
		t.Fatal(err)
	}
	name, err := sys.LocalName(fd)
	if err != nil {
		t.Fatal(err)
	}
	return fd, name.AddrPort.String()
}
