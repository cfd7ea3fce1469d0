package sockopt_test

import (
	"errors"
	"net/netip"
	"strings"
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

// TestConnectable: an invalid host is refused before any lookup.
func TestConnectable(t *testing.T) {
	long := strings.Repeat("x", 63)
	for text, want := range map[string]string{
		"10.0.0.1:80": "", "[2001:db8::1]:80": "", "[fe80::1%eth0]:80": "", "db:80": "", "db.example:80": "", "db.example.:80": "",
		"a_b.example:80": "", "_pg._tcp.example:80": "", "xn--bcher-kva.example:80": "", "1a.2b:80": "", "4711.example:80": "", "DB-1:80": "",
		long + "." + long + ":80": "", "unix:/run/x": "", "unix:@x y": "",
		":80": "write 127.0.0.1:80 for this machine", "db:0": "write one from 1 to 65535", "unix:/run/x?mode=0600": "write unix:/run/x",
		"a b:80": `"a b" is neither an IP address nor a name: write 10.0.0.12:80, [2001:db8::12]:80 or db.example:80`,
		" db:80": "neither", "db :80": "neither", "db/x:80": "neither", "user@db:80": "neither", "a..b:80": "neither", ".db:80": "neither",
		"-db:80": "neither", "db-.example:80": "neither", "*:80": "neither", "*.example:80": "neither", "a%b:80": "neither", "'db':80": "neither",
		"[db]x:80": "write", "a;b:80": "neither", "$DB:80": "neither", "${DB}:80": "neither", long + "x:80": "neither", "..:80": "neither", ".:80": "neither",
		"bücher.example:80": "write Punycode", "10.0.0.256:80": "write the four numbers", "10.0.0:80": "write the four numbers", "4711:80": "write the four numbers",
		"010.0.0.1:80": "write the four numbers", "[::g]:80": "neither",
	} {
		a, err := sockopt.Parse(text)
		if err == nil {
			err = a.Connectable()
		}
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", text, err)
		case want != "" && (!errors.Is(err, sockopt.ErrAddress) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n")):
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
