package failures

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/testutil/netns"
	"github.com/penstock/penstock/internal/testutil/sockets"
)

// listen listens on a host, in this process.
func listen(t *testing.T, h *netns.Host, at netip.Addr) net.Listener {
	t.Helper()
	var l net.Listener
	var err error
	h.Run(func() { l, err = net.Listen("tcp", netip.AddrPortFrom(at, 0).String()) })
	must(t, err)
	return l
}

// TestSourceAddress: endpoints are connected to from the configured address. If this machine no
// longer has it, that does not count as a failure of the endpoints.
func TestSourceAddress(t *testing.T) {
	t.Parallel()
	for name, source := range map[string]netip.Addr{
		"ipv4": netip.MustParseAddr("10.97.0.9"), "ipv6": netip.MustParseAddr("fd00:9::9"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if netns.Alone(t) {
				testSource(t, source)
			}
		})
	}
}

func testSource(t *testing.T, source netip.Addr) {
	here, there := netns.Here(t), netns.New(t)
	link := here.Join(there)
	far, near := link.Far, link.Near
	if source.Is6() {
		far, near = netip.MustParseAddr("fd00:1::2"), netip.MustParseAddr("fd00:1::1")
		here.IP("address add %v/64 dev %s nodad", near, link.Device)
		there.IP("address add %v/64 dev %s nodad", far, link.Device)
	}
	here.Address(source)
	there.Route(source, near)
	l := listen(t, there, far)
	sockets.Serve(t, l, func(c net.Conn) {
		at := netip.MustParseAddrPort(c.RemoteAddr().String())
		fmt.Fprintln(c, at.Addr())
		sockets.Echo(c)
	})
	r := serve(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [{address: %q, name: e}], source_address: %q, health_check: off}]`, l.Addr(), source))
	c, err := dial(t, r.At("l"))
	if err != nil || c.of != source.String() {
		t.Fatalf("%v, %v; want it from %v", c, err, source)
	}
	// On a link this new, the first neighbor solicitations may have been lost.
	before := r.Endpoint("u", "e").Failures
	bits := source.BitLen()
	here.IP("address del %v/%d dev lo", source, bits)
	if _, err := dial(t, r.At("l")); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("without that address: %v, want a reset", err)
	}
	if e := r.Endpoint("u", "e"); e.Failures != before {
		t.Errorf("%+v, want no failures but %d", e, before)
	}
	here.Address(source)
	if c, err = dial(t, r.At("l")); err != nil || c.of != source.String() {
		t.Errorf("%v, %v; want it from %v again", c, err, source)
	}
}
