package failures

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/netns"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/admin"
)

func listen(t *testing.T, h *netns.Host, at netip.Addr) net.Listener {
	t.Helper()
	var l net.Listener
	var err error
	h.Run(func() { l, err = net.Listen("tcp", netip.AddrPortFrom(at, 0).String()) })
	must(t, err)
	return l
}

// TestClientsVanish: sessions of clients whose network is gone, with bytes in flight to them, end
// within user_timeout. Their endpoints are reset. Another client is not affected.
func TestClientsVanish(t *testing.T) {
	t.Parallel()
	if !netns.Alone(t) {
		return
	}
	here, clients, servers := netns.Here(t), netns.New(t), netns.New(t)
	left, right := here.Join(clients), here.Join(servers)
	ends := make(chan error, 1)
	l := listen(t, servers, right.Far)
	sockets.Serve(t, l, func(c net.Conn) {
		_, err := io.WriteString(c, "stream\n")
		for tick := time.NewTicker(10 * time.Millisecond); err == nil; <-tick.C {
			_, err = io.WriteString(c, "more\n")
		}
		ends <- err
	})
	echo := servers.Backend("other", netns.Echo, netip.AddrPortFrom(right.Far, 0))
	r := serve(t, fmt.Sprintf(`
listeners:
  - {name: l, bind: ":7000", upstream: stream, timeouts: {idle: 1h}, socket: {user_timeout: 1s}}
  - {name: m, bind: "127.0.0.1:0", upstream: echo}
upstreams: [{name: stream, endpoints: [%q], health_check: off}, {name: echo, endpoints: [%q], health_check: off}]`, l.Addr(), echo.Addr))
	other, err := dial(t, r.At("m"))
	must(t, err)
	aside := watch(t, other)

	var c net.Conn
	clients.Run(func() {
		c, err = net.DialTimeout("tcp", netip.AddrPortFrom(left.Near, 7000).String(), condition.Patience)
	})
	must(t, err)
	defer c.Close()
	if _, err := greeted(c); err != nil {
		t.Fatal(err)
	}
	clients.Cut(left)
	select {
	case err := <-ends:
		if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
			t.Errorf("the endpoint's end: %v, want a reset", err)
		}
	case <-time.After(condition.Patience):
		t.Fatal("the endpoint still sends without a client")
	}
	r.Logs("session ended", l.Addr().String(), "timed out")
	r.Until("one session is left", func() bool { return r.Status().Connections.Active == 1 })
	if n := r.Count("failures"); n != 0 {
		t.Errorf("%d failures of endpoints", n)
	}
	before := aside.echoes.Load()
	r.Until("the other client echoes", func() bool { return aside.echoes.Load() > before+2 || aside.failed.Load() != nil })
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

// TestSourceAddressSharesPorts: with a source_address too, a check, and a client with TLS, use a local port that a session
// with another endpoint has. Otherwise healthy endpoints would be down, and their sessions reset, once all ports have sessions.
func TestSourceAddressSharesPorts(t *testing.T) {
	t.Parallel()
	if !netns.Alone(t) {
		return
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_local_port_range", []byte("40001 40001"), 0o644); err != nil {
		t.Skip("no range of ports can be set:", err)
	}
	dir := t.TempDir()
	listen := func(port int) {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		must(t, err)
		sockets.Serve(t, l, sockets.Echo)
	}
	listen(5001)
	listen(5003)
	b := serve(t, fmt.Sprintf(`
listeners:
  - {name: plain, bind: ["unix:%[1]s/plain"], upstream: u}
  - {name: tls, bind: ["unix:%[1]s/tls"], upstream: w, tls: {certificates: [{cert: c.pem, key: k.pem}]}}
upstreams:
  - {name: u, endpoints: ["127.0.0.1:5001"], source_address: 127.0.0.1, health_check: off}
  - {name: v, endpoints: [{address: "127.0.0.1:5002", name: e}], source_address: 127.0.0.1, health_check: {interval: 20ms, fall: 1, rise: 1}}
  - {name: w, endpoints: ["127.0.0.1:5003"], source_address: 127.0.0.1, health_check: off}`, dir))
	for _, name := range []string{"plain", "tls"} {
		c, err := net.Dial("unix", dir+"/"+name)
		must(t, err)
		defer c.Close()
		if name == "tls" {
			c = manners[1].wrap(c)
		}
		_ = c.SetDeadline(time.Now().Add(condition.Patience))
		must(t, (&client{Conn: c}).echo("hello\n"))
	}
	b.Until("a check that was refused", func() bool {
		e := b.Endpoint("v", "e")
		return e.State == admin.Down && strings.Contains(e.Why, "refused")
	})
	listen(5002)
	b.Until("a check that has succeeded", func() bool { return b.Endpoint("v", "e").State == admin.Up })
}
