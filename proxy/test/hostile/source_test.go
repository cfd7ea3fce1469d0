package hostile_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/certificate"
	"github.com/penstock/penstock/internal/testutil/sockets"
)

// An inbox is an endpoint on a unix socket that counts the connections on which a line arrived,
// and then closes them.
type inbox struct {
	addr  string
	cert  string // its TLS certificate; empty: no TLS
	open  atomic.Int64
	came  atomic.Int64
	mu    sync.Mutex
	lines map[string]int // up to the third word
}

// newInbox serves, in TLS if encrypted is set.
func newInbox(t *testing.T, encrypted bool) *inbox {
	t.Helper()
	path := filepath.Join(t.TempDir(), "endpoint")
	l, err := net.Listen("unix", path)
	must(t, err)
	b := &inbox{addr: "unix:" + path, lines: make(map[string]int)}
	var cfg *tls.Config
	if encrypted {
		cert, key := certificate.New(t, "endpoint.test")
		pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
		must(t, err)
		b.cert, cfg = cert, &tls.Config{Certificates: []tls.Certificate{pair}}
	}
	sockets.Serve(t, l, func(c net.Conn) {
		b.open.Add(1)
		defer b.open.Add(-1)
		if cfg != nil {
			c = tls.Server(c, cfg)
		}
		if line, err := sockets.ReadLine(c); err == nil {
			b.came.Add(1)
			b.mu.Lock()
			b.lines[strings.Join(strings.SplitN(line, " ", 4)[:min(3, strings.Count(line, " ")+1)], " ")]++
			b.mu.Unlock()
		}
	})
	return b
}

// settle waits until the endpoint has read all of its bytes: a connection made now is behind all
// earlier ones.
func (b *inbox) settle(r *rig) {
	r.T.Helper()
	taken := make(chan struct{})
	c, err := net.Dial("unix", strings.TrimPrefix(b.addr, "unix:"))
	must(r.T, err)
	go func() {
		defer close(taken)
		_, _ = c.Read(make([]byte, 1)) // the peer's end of file, which follows ours
	}()
	must(r.T, c.(*net.UnixConn).CloseWrite())
	<-taken
	c.Close()
	r.Until("the endpoint has read all bytes", func() bool { return b.open.Load() == 0 })
}

// hasty is the configuration of the tests. They test the listener l, while a client of another
// listener has the only place of the process.
const hasty = `
limits: {connections: 1}
listeners:
  - {name: holder, bind: "127.0.0.1:0", upstream: idle}
  - {name: l, bind: %q, %s}
upstreams:
  - {name: idle, endpoints: [%q]}
  - {name: u, endpoints: [%q], health_check: off%s}
  - {name: nowhere, endpoints: ["127.0.0.1:1"], health_check: off, outlier_detection: off, circuit_breaker: off}`

func startHasty(t *testing.T, b *inbox, bind, rules, upstream string) *rig {
	t.Helper()
	var files []string
	if b.cert != "" {
		upstream += ", tls: {ca: endpoint.pem, sni: endpoint.test}"
		files = []string{"endpoint.pem", b.cert}
	}
	return start(t, fmt.Sprintf(hasty, bind, rules, echo(t), b.addr, upstream), files...)
}

// hastily has n clients connect to l, send a payload and reset, before any of them is accepted.
// It waits until all were accepted and have left, and returns how long that took.
func (r *rig) hastily(b *inbox, network string, n int, payload string) time.Duration {
	r.T.Helper()
	holder := sockets.Dial(r.T, r.At("holder"))
	r.Until("the only place is taken", func() bool { return r.Summary().Connections.Active == 1 })
	var d net.Dialer
	d.SetMultipathTCP(network == "mptcp")
	at := r.At("l")
	for range n {
		c, err := d.DialContext(r.T.Context(), "tcp", at)
		must(r.T, err)
		_, err = io.WriteString(c, payload)
		must(r.T, err)
		must(r.T, c.(*net.TCPConn).SetLinger(0))
		c.Close()
	}
	if n := r.Listener("l").Connections.Accepted; n > 0 {
		r.T.Fatalf("%d clients were accepted while there was no place", n)
	}
	began := time.Now()
	holder.Close()
	r.Until("all clients were accepted and have left", func() bool {
		c := r.Listener("l").Connections
		return c.Accepted == int64(n) && c.Active == 0
	})
	took := time.Since(began)
	b.settle(r)
	return took
}

func withoutMultipath(t *testing.T) {
	if b, err := os.ReadFile("/proc/sys/net/mptcp/enabled"); err != nil || b[0] != '1' {
		t.Skipf("this kernel has no Multipath TCP, or it is off: %v", err)
	}
}

// TestHastyClients: clients that have sent and reset before they are accepted are subject to the
// same rules as all others.
func TestHastyClients(t *testing.T) {
	const clients = 300
	const all = `upstream: u, deny: ["0.0.0.0/0", "::/0"]`
	for name, x := range map[string]struct {
		network, bind, rules, payload, reason string
	}{
		"deny":            {"tcp", "127.0.0.1:0", all, "payload\n", "address"},
		"deny, IPv6":      {"tcp", "[::1]:0", all, "payload\n", "address"},
		"deny, both":      {"tcp", ":0", `upstream: u, deny: ["127.0.0.0/8", "::1"]`, "payload\n", "address"},
		"deny, multipath": {"mptcp", "127.0.0.1:0", all + ", socket: {mptcp: true}", "payload\n", "address"},
		"allow":           {"tcp", "127.0.0.1:0", `upstream: u, allow: ["10.0.0.0/8"]`, "payload\n", "address"},
		"match": {
			"tcp", "127.0.0.1:0", `routes: [{match: {source: ["127.0.0.0/8"]}, upstream: nowhere}], upstream: u`, "payload\n", "",
		},
		"another's header": {
			"tcp", "127.0.0.1:0", `upstream: u, accept_proxy: {from: ["10.0.0.0/8"]}, allow: ["192.0.2.0/24"]`,
			"PROXY TCP4 192.0.2.1 192.0.2.2 1111 443\r\npayload\n", "address",
		},
	} {
		for _, encrypted := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/encrypted=%v", name, encrypted), func(t *testing.T) {
				if x.network == "mptcp" {
					withoutMultipath(t)
				}
				b := newInbox(t, encrypted)
				r := startHasty(t, b, x.bind, x.rules, "")
				r.hastily(b, x.network, clients, x.payload)
				if n := b.came.Load(); n > 0 {
					t.Errorf("%d of %d payloads have reached the endpoint", n, clients)
				}
				if n := r.Refused("l", x.reason); n != clients && x.reason != "" {
					t.Errorf("refused %v, want %d by %s", r.Listener("l").Reasons, clients, x.reason)
				}
			})
		}
	}
}
