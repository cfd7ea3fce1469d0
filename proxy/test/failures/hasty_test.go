package failures

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/netns"
	"github.com/penstock/penstock/internal/testutil/sockets"
)

// TestTransparentHastyClients: some clients send and reset before they are accepted. Their source
// and their original destination are known, by whatever way they are redirected. They are routed
// by both, and the PROXY header to the endpoint has both.
func TestTransparentHastyClients(t *testing.T) {
	t.Parallel()
	for way, b := range bringings {
		for name, f := range families {
			t.Run(way+"/"+name, func(t *testing.T) {
				t.Parallel()
				if !netns.Alone(t) {
					return
				}
				if b.nft {
					needNFT(t)
				}
				b.testHasty(t, f)
			})
		}
	}
}

func (b *bringing) testHasty(t *testing.T, f *family) {
	const clients = 20
	p, dir := lay(t, f), t.TempDir()
	endpoint, holder := filepath.Join(dir, "e"), filepath.Join(dir, "h")
	p.bring(b)
	told := make(chan string, clients+1)
	l, err := net.Listen("unix", endpoint)
	must(t, err)
	sockets.Serve(t, l, func(c net.Conn) {
		if line, err := sockets.ReadLine(c); err == nil {
			told <- line
		}
		sockets.Echo(c)
	})
	at := netip.AddrPortFrom(f.origin, b.port) // a port that each way redirects
	if b.nft {
		at = netip.AddrPortFrom(f.origin, 81)
	}
	p.manner = manners[0]
	p.Instance = serve(t, fmt.Sprintf(`
limits: {connections: 1}
listeners:
  - {name: l, bind: [":%d"], transparent: true, routes: [{match: {source: [%q], port: %d}, upstream: u}]}
  - {name: h, bind: ["unix:%s"], upstream: u}
upstreams: [{name: u, endpoints: ["unix:%s"], health_check: off, send_proxy: 1}]`, b.port, p.family.far, at.Port(), holder, endpoint))
	held, err := net.Dial("unix", holder)
	must(t, err)
	defer held.Close()
	next := func() string {
		select {
		case line := <-told:
			return line
		case <-time.After(condition.Patience):
			return "nothing"
		}
	}
	if got := next(); got != "PROXY UNKNOWN\r" {
		t.Errorf("for a client of a unix socket the endpoint gets %q", got)
	}
	var want []string
	for range clients {
		var c net.Conn
		p.clients.Run(func() { c, err = net.DialTimeout("tcp", at.String(), condition.Patience) })
		must(t, err)
		from := netip.MustParseAddrPort(c.LocalAddr().String())
		_, _ = io.WriteString(c, "payload\n")
		_ = c.(*net.TCPConn).SetLinger(0)
		c.Close()
		protocol := "TCP4"
		if from.Addr().Is6() {
			protocol = "TCP6"
		}
		want = append(want, fmt.Sprintf("PROXY %s %v %v %d %d\r", protocol, from.Addr(), at.Addr(), from.Port(), at.Port()))
	}
	held.Close()
	var got []string
	for len(got) < len(want) && !slices.Contains(got, "nothing") {
		got = append(got, next())
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the endpoint gets %q, want %q", got, want)
	}
}
