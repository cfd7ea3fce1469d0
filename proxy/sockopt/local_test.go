package sockopt_test

import (
	"net"
	"net/netip"
	"testing"

	"github.com/penstock/penstock/proxy/sockopt"
)

// TestLocal: the loopback and the addresses of an interface are local, and the other addresses
// of its network are not.
func TestLocal(t *testing.T) {
	local := sockopt.Local()
	for address, want := range map[string]bool{
		"127.0.0.1": true, "127.8.9.10": true, "::1": true, "0.0.0.0": true, "::": true, "::ffff:127.0.0.1": true,
		"192.0.2.77": false, "2001:db8::77": false, "::ffff:192.0.2.77": false,
	} {
		if got := local(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s is local: %v", address, got)
		}
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if p := netip.MustParsePrefix(a.String()); !local(p.Addr()) || p.Bits() < 31 && p.Addr().Is4() && !p.Addr().IsLoopback() && local(p.Masked().Addr()) {
			t.Errorf("%v: its address is local %v, that of its network %v", p, local(p.Addr()), local(p.Masked().Addr()))
		}
	}
}

// TestCanonical: equal addresses have the same form, and others have not.
func TestCanonical(t *testing.T) {
	for text, want := range map[string]string{
		"127.0.0.1": "127.0.0.1", "::ffff:127.0.0.1": "127.0.0.1", "::1%lo": "::1", "2001:db8::1%9": "2001:db8::1",
		"fe80::1": "fe80::1", "fe80::1%lo": "fe80::1%1", "fe80::1%1": "fe80::1%1", "fe80::1%none0": "fe80::1%none0",
	} {
		if got := sockopt.Canonical(netip.MustParseAddr(text)); got.String() != want {
			t.Errorf("%s is %v, want %s", text, got, want)
		}
	}
}
