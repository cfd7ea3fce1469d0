package sockopt_test

import (
	"net/netip"
	"testing"

	"github.com/penstock/penstock/proxy/sockopt"
)

// TestNoHost: addresses of IP that belong to no single host.
func TestNoHost(t *testing.T) {
	for text, want := range map[string]bool{
		"10.0.0.1": false, "127.0.0.1": false, "::1": false, "169.254.1.1": false, "2001:db8::1": false, "fe80::1%eth0": false, "0.0.0.1": false,
		"255.255.255.254": false, "0.0.0.0": true, "::": true, "::ffff:0.0.0.0": true, "255.255.255.255": true, "224.0.0.1": true,
		"239.255.255.255": true, "ff02::1": true, "ff02::1%eth0": true, "fe80::1": true,
	} {
		if why := sockopt.NoHost(netip.MustParseAddr(text)); (why != "") != want {
			t.Errorf("%s: %q", text, why)
		}
	}
}
