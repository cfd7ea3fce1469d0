package sys_test

import (
	"net"
	"net/netip"
	"testing"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/must"
)

// TestLocalRoute: every address of this machine is its own, and one that is for
// documentation only (RFC 5737, RFC 3849) is not.
func TestLocalRoute(t *testing.T) {
	own := must.Get(net.InterfaceAddrs())(t)
	want := map[netip.Addr]bool{
		netip.MustParseAddr("127.0.0.1"): true, netip.MustParseAddr("127.9.9.9"): true,
		netip.MustParseAddr("::ffff:127.0.0.1"): true,
		netip.MustParseAddr("192.0.2.1"):        false, netip.MustParseAddr("2001:db8::1"): false,
	}
	for _, a := range own {
		if p, err := netip.ParsePrefix(a.String()); err == nil && !p.Addr().IsLinkLocalUnicast() {
			want[p.Addr()] = true
		}
	}
	for a, local := range want {
		if got, err := sys.LocalRoute(a); got != local || err != nil {
			t.Errorf("%v: %v, %v", a, got, err)
		}
	}
}
