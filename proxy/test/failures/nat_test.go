package failures

import (
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/testutil/certificate"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/netns"
	"github.com/penstock/penstock/proxy/internal/testutil/loadbalancer"
)

// natRules lead this machine's connections to service addresses to listeners of this machine. The last one leads only connections
// with a mark.
const natRules = `
table inet n {
	chain output {
		type nat hook output priority -100
		ip daddr 10.99.0.1 tcp dport 80 dnat ip to 10.61.0.1:8501
		ip daddr 10.99.0.2 tcp dport 80 dnat ip to 10.61.0.1:8502
		ip daddr 10.99.0.4 tcp dport 80 dnat ip to 10.61.0.1:8504
		ip daddr 10.99.0.5 tcp dport 80 dnat ip to 10.61.0.1:8505
		ip daddr 10.99.0.6 tcp dport 80 dnat ip to 10.61.0.1:8506
		ip daddr 10.99.0.7 tcp dport 80 dnat ip to 10.61.0.1:8507
		ip daddr 10.99.0.8 tcp dport 80 dnat ip to 10.61.0.1:8508
		ip daddr 127.0.0.1 tcp dport 80 redirect to :8510
		ip6 daddr fd99::1 tcp dport 80 dnat ip6 to [fd61::1]:8511
		ip daddr 10.99.0.0/24 tcp dport 81 redirect to :15001
		ip daddr 10.99.0.9 tcp dport 80 meta mark 1 dnat ip to 10.61.0.1:8513
	}
}
`

// byNAT serves a configuration to few clients behind natRules. Its %[1]s is a server of this host, and its %[2]s a server on the
// host of the clients, who can connect to 10.61.0.1.
func byNAT(t *testing.T, text string) (b *loadbalancer.Instance, clients *netns.Host) {
	nft := needNFT(t)
	here, clients := netns.Here(t), netns.New(t)
	link := here.Join(clients)
	for _, ip := range []string{"10.61.0.1", "fd61::1"} {
		here.Address(netip.MustParseAddr(ip))
	}
	here.IP("-6 route add fd99::/64 dev lo")
	here.IP("route add 10.99.0.0/24 via %s", link.Far)
	clients.IP("route add 10.61.0.1/32 via %s", link.Near)
	service := netip.MustParseAddr("10.99.0.9")
	clients.Address(service)
	cmd := exec.Command(nft, "-f", "-")
	cmd.Stdin = strings.NewReader(natRules)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("nft: %v: %s", err, out)
	}
	text = fmt.Sprintf(text, here.Backend("good", netns.Echo, netip.MustParseAddrPort("10.61.0.1:0")).Addr, clients.Backend("service", netns.Echo, netip.AddrPortFrom(service, 80)).Addr)
	cert, key := certificate.New(t, "a.test")
	return loadbalancer.Setting{Clients: 60}.Start(t, text, "c.pem", cert, "k.pem", key), clients
}

// TestCircleByNAT: rules of this machine lead the load balancer's own connections to its listeners. One client becomes a few, and
// gets another endpoint if there is one. Rules that lead in no circle are in nobody's way.
func TestCircleByNAT(t *testing.T) {
	t.Parallel()
	if !netns.Alone(t) {
		return
	}
	b, clients := byNAT(t, `
listeners:
- {name: sole, bind: "10.61.0.1:8501", upstream: sole}
- {name: two, bind: "10.61.0.1:8502", upstream: two}
- {name: mirrored, bind: "10.61.0.1:8504", upstream: good, mirror: {upstream: mirror}}
- {name: tls, bind: "10.61.0.1:8505", upstream: tls, tls: {certificates: [{cert: c.pem, key: k.pem}]}}
- {name: a, bind: "10.61.0.1:8506", upstream: a}
- {name: b, bind: "10.61.0.1:8507", upstream: b}
- {name: end, bind: "10.61.0.1:8508", upstream: good}
- {name: chain, bind: ":8509", upstream: chain}
- {name: loopback, bind: ":8510", upstream: loopback}
- {name: ipv6, bind: "[fd61::1]:8511", upstream: ipv6}
- {name: through, bind: "10.61.0.1:8512", upstream: through}
- {name: marked, bind: "10.61.0.1:8513", upstream: marked}
- {name: out, bind: ":15001", transparent: true}
upstreams:
- {name: sole, endpoints: ["10.99.0.1:80"], health_check: off, queue: {hold: 0s}}
- {name: two, endpoints: ["10.99.0.2:80", "%[1]s"], health_check: off}
- {name: mirror, endpoints: ["10.99.0.4:80"], health_check: off}
- {name: tls, endpoints: ["10.99.0.5:80"], health_check: off, queue: {hold: 0s}, tls: {ca: c.pem, sni: a.test}}
- {name: a, endpoints: ["10.99.0.7:80"], health_check: off, queue: {hold: 0s}}
- {name: b, endpoints: ["10.99.0.6:80"], health_check: off, queue: {hold: 0s}}
- {name: chain, endpoints: ["10.99.0.8:80"], health_check: off}
- {name: loopback, endpoints: ["127.0.0.1:80"], health_check: off, queue: {hold: 0s}}
- {name: ipv6, endpoints: ["[fd99::1]:80"], health_check: off, queue: {hold: 0s}}
- {name: through, endpoints: ["10.99.0.1:81", "%[1]s"], health_check: off}
- {name: marked, endpoints: ["%[2]s"], health_check: off}
- {name: good, endpoints: ["%[1]s"], health_check: off}`)
	var m manner
	var server string
	dial := func(at string) {
		c, err := m.dial(t, at)
		if server = ""; err == nil {
			server = c.of
			c.Close()
		}
	}
	for _, c := range []struct {
		listener, at, service, server string // server "": there is none
		lost                          int    // how many clients may get no server, until the circle is known
	}{
		{"sole", "10.61.0.1:8501", "10.99.0.1:80", "", 0},
		{"two", "10.61.0.1:8502", "10.99.0.2:80", "good", 0},
		{"mirrored", "10.61.0.1:8504", "10.99.0.4:80", "good", 0},
		{"tls", "10.61.0.1:8505", "10.99.0.5:80", "", 0},
		{"a", "10.61.0.1:8506", "10.99.0.6:80", "", 0},
		{"chain", "10.61.0.1:8509", "10.99.0.8:80", "good", 0},
		{"loopback", "10.61.0.1:8510", "127.0.0.1:80", "", 0},
		{"ipv6", "[fd61::1]:8511", "[fd99::1]:80", "", 0},
		{"through", "10.61.0.1:8512", "10.61.0.1:8512", "good", 2},
		{"out", "10.99.0.2:81", "10.99.0.3:81", "", 0},
	} {
		m = manners[0]
		if c.listener == "tls" {
			m = manners[1]
		}
		for i := range 15 {
			b.OneClient(c.listener, 8, func() {
				switch {
				case i%3 == 0 && strings.HasPrefix(c.at, "10.61."):
					clients.Run(func() { dial(c.at) })
				case i%3 == 1:
					dial(c.service)
				default:
					dial(c.at)
				}
			})
			if server != c.server {
				if c.lost--; c.lost < 0 {
					t.Errorf("client %d of the listener %s is served by %q, want %q", i, c.listener, server, c.server)
				}
			}
		}
	}
	for _, u := range b.Status().Upstreams {
		f := u.Endpoints[0].LastFailure
		if in := f != nil && strings.Contains(f.Cause, "connections would go in a circle"); in != slices.Contains([]string{"sole", "two", "tls", "b", "loopback", "ipv6", "through"}, u.Name) {
			t.Errorf("the upstream %s: %+v", u.Name, f)
		}
	}
	b.Logs("clients refused", "listener=out")
	d := net.Dialer{Timeout: condition.Patience, Control: func(_, _ string, raw syscall.RawConn) (err error) {
		must(t, raw.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_MARK, 1) }))
		return err
	}}
	for range 20 {
		c, err := d.Dial("tcp", "10.99.0.9:80")
		must(t, err)
		if got, err := greeted(c); err != nil || got.of != "service" {
			t.Errorf("a client by a rule for others: %v, %v", got, err)
		}
		c.Close()
	}
	if n := b.Listener("marked").Connections.Accepted; n != 20 {
		t.Errorf("the listener of the rule for others got %d clients, want 20", n)
	}
}

// TestChecksByNAT: of the checks that come to a listener by NAT, the first ones alone are clients.
func TestChecksByNAT(t *testing.T) {
	t.Parallel()
	if !netns.Alone(t) {
		return
	}
	b, _ := byNAT(t, `
listeners:
- {name: l, bind: "10.61.0.1:8501", upstream: u}
- {name: other, bind: "10.61.0.1:8502", upstream: good}
upstreams:
- {name: u, endpoints: ["10.99.0.1:80"], health_check: {interval: 20ms}, queue: {hold: 0s}}
- {name: good, endpoints: ["%[1]s"], health_check: off}`)
	b.Until("checks fail", func() bool {
		return strings.Contains(b.Endpoint("u", "10.99.0.1:80").Why, "connections would go in a circle")
	})
	if n := b.Listener("l").Connections.Accepted; n > 10 {
		t.Errorf("checks have become %d clients", n)
	}
	c, err := dial(t, "10.61.0.1:8502")
	if err != nil || c.of != "good" {
		t.Errorf("a client of another listener: %v, %v", c, err)
	}
}
