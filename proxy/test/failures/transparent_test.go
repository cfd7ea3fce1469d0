package failures

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/netns"
	"github.com/penstock/penstock/internal/testutil/privilege"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/internal/testutil/loadbalancer"
)

// A path is clients and servers with a transparent listener between them.
type path struct {
	*loadbalancer.Instance
	manner
	t                      *testing.T
	here, clients, servers *netns.Host
	left, right            netns.Link
	family                 *family
	ports                  int // the number of clients' ports
}

// A family is the addresses of one address family.
type family struct {
	option        string // the option of ip(8)
	near, far     string // addresses of the clients' link
	back, next    string // addresses of the servers' link
	prefix        string // the servers' addresses
	origin, other netip.Addr
}

var families = map[string]*family{
	"ipv4": {
		option: "-4", prefix: "198.51.100.0/24",
		origin: netip.MustParseAddr("198.51.100.7"), other: netip.MustParseAddr("198.51.100.8"),
	},
	"ipv6": {
		option: "-6", prefix: "2001:db8:1::/64",
		near: "fd00:1::1", far: "fd00:1::2", back: "fd00:2::1", next: "fd00:2::2",
		origin: netip.MustParseAddr("2001:db8:1::7"), other: netip.MustParseAddr("2001:db8:1::8"),
	},
}

// A bringing is a way to redirect passing connections to a listener, as in docs/lane.md.
type bringing struct {
	heading string // in that page
	port    uint16 // the listener's port
	nft     bool
}

var bringings = map[string]bringing{
	"local route": {heading: "A local route", port: 80},
	"tproxy":      {heading: "TPROXY", port: 15001, nft: true},
	"redirect":    {heading: "REDIRECT", port: 15001, nft: true},
}

func (b *bringing) commands(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/lane.md")
	must(t, err)
	_, section, _ := strings.Cut(string(text), "\n### "+b.heading+"\n")
	_, block, begun := strings.Cut(section, "\n```sh\n")
	block, _, ended := strings.Cut(block, "\n```\n")
	if !begun || !ended {
		t.Fatalf("docs/lane.md has no commands under %s", b.heading)
	}
	return block
}

// bring has the shell run the commands for clients that arrive from the left.
func (p *path) bring(b *bringing) {
	p.t.Helper()
	cmd := exec.Command("sh", "-e")
	cmd.Stdin = strings.NewReader(strings.ReplaceAll(b.commands(p.t), "eth0", p.left.Device))
	cmd.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
	if out, err := cmd.CombinedOutput(); err != nil {
		p.t.Fatalf("%s: %v: %s", b.heading, err, out)
	}
}

// needNFT skips the test if nft(8) is missing or does not work. If CI is set it fails the test.
func needNFT(t *testing.T) (program string) {
	t.Helper()
	missing := t.Skipf
	if os.Getenv("CI") != "" {
		missing = t.Fatalf
	}
	for _, name := range []string{"nft", "/usr/sbin/nft"} {
		if p, err := exec.LookPath(name); err == nil {
			program = p
		}
	}
	if program == "" {
		missing("no nft(8), which package nftables has")
	}
	if out, err := exec.Command(program, "list", "ruleset").CombinedOutput(); err != nil {
		missing("this kernel has no nf_tables (CONFIG_NF_TABLES): %v: %s", err, out)
	}
	return program
}

// lay sets up a path. All addresses of the prefix are the servers', and the clients' route to
// them leads through the middle.
func lay(t *testing.T, f *family) *path {
	t.Helper()
	p := &path{t: t, here: netns.Here(t), clients: netns.New(t), servers: netns.New(t)}
	p.left, p.right = p.here.Join(p.clients), p.here.Join(p.servers)
	own := *f
	p.family = &own
	if f.option == "-4" {
		own.near, own.far = p.left.Near.String(), p.left.Far.String()
		own.back, own.next = p.right.Near.String(), p.right.Far.String()
	} else {
		p.here.IP("address add %s/64 dev %s nodad", own.near, p.left.Device)
		p.clients.IP("address add %s/64 dev %s nodad", own.far, p.left.Device)
		p.here.IP("address add %s/64 dev %s nodad", own.back, p.right.Device)
		p.servers.IP("address add %s/64 dev %s nodad", own.next, p.right.Device)
	}
	p.servers.Address(own.origin)
	p.servers.Address(own.other)
	p.servers.Address(own.other.Next()) // no socket listens there
	p.clients.IP("%s route add %s via %s", own.option, own.prefix, own.near)
	p.here.IP("%s route add %s via %s", own.option, own.prefix, own.next)
	return p
}

// dial connects a client in the clients' host, and reads its server's name. Each client has a
// port of its own. If the kernel chooses, two clients may have the same port for two servers. A
// redirection of both to one address then drops the segments of the second
// (net/netfilter/nf_nat_core.c, get_unique_tuple).
func (p *path) dial(at netip.AddrPort) (*client, error) {
	p.t.Helper()
	var c net.Conn
	var err error
	p.ports++
	d := net.Dialer{Timeout: condition.Patience, LocalAddr: &net.TCPAddr{Port: 20000 + p.ports}}
	p.clients.Run(func() { c, err = d.Dial("tcp", at.String()) })
	if err != nil {
		return nil, err
	}
	p.t.Cleanup(func() { c.Close() })
	return greeted(p.wrap(c))
}

// TestTransparent: clients without knowledge of the load balancer reach their original
// destination, unless a route says otherwise, by whatever way they are redirected.
func TestTransparent(t *testing.T) {
	t.Parallel()
	for way, b := range bringings {
		for name, f := range families {
			for _, m := range manners {
				t.Run(way+"/"+name+"/"+m.name, func(t *testing.T) {
					t.Parallel()
					if !netns.Alone(t) {
						return
					}
					if b.nft {
						needNFT(t)
					}
					b.test(t, f, m)
				})
			}
		}
	}
}

func (b *bringing) test(t *testing.T, f *family, m manner) {
	p := lay(t, f)
	p.manner = m
	p.servers.Backend("origin", netns.Echo, netip.AddrPortFrom(f.origin, 80))
	p.servers.Backend("other", netns.Echo, netip.AddrPortFrom(f.other, 80))
	fixed := p.servers.Backend("fixed", netns.Echo, netip.AddrPortFrom(netip.MustParseAddr(p.family.next), 0))
	p.bring(b)
	metrics, refused := 9464, int64(3)
	if b.nft { // passing connections to this port are redirected
		metrics, refused = 80, 4
	}
	p.Instance = serve(t, fmt.Sprintf(`
listeners: [{name: l, bind: [":%d"], transparent: true, %s routes: [{match: {port: 81}, upstream: u}], timeouts: {connect: 1s}}]
upstreams: [{name: u, endpoints: [%q], health_check: off, send_proxy: 1}]
session_log: {to: sessions.log, format: template, template: "{state} {attempt_cause}"}
metrics: {bind: ":%d", allow: [%s]}`, b.port, m.listener, fixed.Addr, metrics, p.family.near))

	c := p.gets("origin", f.origin)
	p.gets("other", f.other)
	if b.nft {
		p.routed(81)
	}
	p.reset("the listener itself", netip.AddrPortFrom(netip.MustParseAddr(p.family.near), b.port))
	p.Logs("connection refused", "this process itself")
	if b.nft {
		p.reset("the metrics", netip.AddrPortFrom(netip.MustParseAddr(p.family.near), uint16(metrics)))
		p.Until("it has no route", func() bool { return p.Refused("l", "no_route") == 2 })
	}
	p.reset("a host without such a server", netip.AddrPortFrom(f.other.Next(), 80))
	p.servers.Silence(netip.MustParseAddr(p.family.back))
	p.reset("a host that is silent", netip.AddrPortFrom(f.origin, 80))
	p.servers.RemoveRoute(netip.MustParseAddr(p.family.back))
	if err := c.echo("not touched"); err != nil {
		t.Error(err)
	}
	p.Until("the refusals are counted", func() bool { return p.Status().Listeners[0].Connections.Refused == refused })
	p.Until("the session log has how the destinations failed", func() bool {
		lines, err := os.ReadFile(filepath.Join(p.Dir, "sessions.log"))
		return err == nil && strings.Contains(string(lines), "SC refused\n") && strings.Contains(string(lines), "sC timeout\n")
	})
	if n := p.Count("accepted"); n > 7 {
		t.Errorf("%d clients were accepted: a client of the listener itself has caused others", n)
	}
}

// gets connects a client to a server, and fails the test unless the server has that name.
func (p *path) gets(name string, at netip.Addr) *client {
	p.t.Helper()
	c, err := p.dial(netip.AddrPortFrom(at, 80))
	if err != nil || c.of != name {
		p.t.Fatalf("a client of %v: %v, %v; want it served by %s", at, c, err, name)
	}
	if err := c.echo("by way of the middle"); err != nil {
		p.t.Error(err)
	}
	return c
}

// reset connects a client that must be reset.
func (p *path) reset(what string, at netip.AddrPort) {
	p.t.Helper()
	if _, err := p.dial(at); !errors.Is(err, syscall.ECONNRESET) {
		p.t.Errorf("a client of %s: %v, want a reset", what, err)
	}
}

// routed connects to a port that has a route. Its endpoint gets the original destination in the
// PROXY header, and echoes the header to the client.
func (p *path) routed(port uint16) {
	p.t.Helper()
	at := netip.AddrPortFrom(p.family.origin, port)
	c, err := p.dial(at)
	if err != nil || c.of != "fixed" {
		p.t.Fatalf("a client of %v: %v, %v; want it routed", at, c, err)
	}
	header, err := bufio.NewReader(c).ReadString('\n')
	from := netip.MustParseAddrPort(c.LocalAddr().String())
	want := fmt.Sprintf(" %v %v %d %d\r\n", from.Addr(), at.Addr(), from.Port(), port)
	if err != nil || !strings.HasSuffix(header, want) {
		p.t.Errorf("the endpoint gets %q, %v; want %q", header, err, want)
	}
}

// TestTransparentCancel: a CancelRequest of PostgreSQL gets to its client's original destination.
func TestTransparentCancel(t *testing.T) {
	t.Parallel()
	if !netns.Alone(t) {
		return
	}
	p, b := lay(t, families["ipv4"]), bringings["local route"]
	var l net.Listener
	var err error
	p.servers.Run(func() { l, err = net.Listen("tcp", netip.AddrPortFrom(p.family.origin, b.port).String()) })
	must(t, err)
	const request = "\x00\x00\x00\x10\x04\xd2\x16\x2e12345678"
	got := make(chan string, 1)
	sockets.Serve(t, l, func(c net.Conn) {
		b := make([]byte, len(request))
		n, _ := io.ReadFull(c, b)
		got <- string(b[:n])
	})
	p.bring(&b)
	serve(t, fmt.Sprintf(`listeners: [{name: l, bind: [":%d"], transparent: true, postgres: passthrough}]`, b.port))
	var c net.Conn
	p.clients.Run(func() { c, err = net.Dial("tcp", l.Addr().String()) })
	must(t, err)
	defer c.Close()
	must(t, c.SetDeadline(time.Now().Add(condition.Patience)))
	_, err = io.WriteString(c, request)
	must(t, err)
	if _, err := c.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("%v, want an end", err)
	}
	select {
	case b := <-got:
		if b != request {
			t.Errorf("the destination got %q", b)
		}
	default:
		t.Error("the destination got no request")
	}
}

// TestTransparentWithoutRights: TPROXY requires a capability, and a warning is logged if it is
// missing. Redirected connections require none.
func TestTransparentWithoutRights(t *testing.T) {
	t.Parallel()
	if !privilege.Ordinary(t) {
		return
	}
	r := serve(t, `listeners: [{name: l, bind: "127.0.0.1:0", transparent: true}]`)
	r.Logs("level=WARN", "IP_TRANSPARENT", "listener=l")
}
