package traffic

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/testutil/pipequota"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/internal/testutil/program"
)

// flow, summary: the last line of penstock proxy --log json, and a part of its status.
type (
	flow    = admin.ByEngine
	summary struct{ admin.Summary }
)

// A proxy is a running penstock proxy.
type proxy struct {
	*program.Program
	addr string // where it listens on loopback
}

// startProxy runs penstock proxy on loopback, and at the address of a --listen among flags, in
// front of target. The test must call stop.
func startProxy(t *testing.T, target string, flags ...string) *proxy {
	t.Helper()
	pipequota.Share(t)
	p := &proxy{Program: program.Proxy(t, binary, sockets.Dir(t), append([]string{"--log", "json", "--listen", "127.0.0.1:0", "--to", target}, flags...)...)}
	for _, l := range p.State().Listeners {
		for _, addr := range l.Addresses {
			if !strings.HasPrefix(addr, "unix:") {
				p.addr = addr
			}
		}
	}
	return p
}

// stop ends the proxy, and checks the conditions of every clean end: exit status 0, nothing refused, nothing active, no
// pipe leased.
func (p *proxy) stop(t *testing.T) (s summary) {
	t.Helper()
	p.End()
	must(t, json.NewDecoder(strings.NewReader(p.Stdout.String())).Decode(&s))
	t.Logf("summary: %+v", s)
	if s.Connections.Accepted == 0 || s.Connections.Active != 0 || s.Connections.Refused != 0 {
		t.Errorf("connections %+v, want some accepted, none active, none refused", s.Connections)
	}
	if s.Pipes.Leased != 0 {
		t.Errorf("%d pipes leased after the last session", s.Pipes.Leased)
	}
	return s
}

// clean checks that no byte was lost and that no session fell back.
func (s summary) clean(t *testing.T) {
	t.Helper()
	if s.Lost != 0 {
		t.Errorf("%d bytes lost", s.Lost)
	}
	for reason, n := range s.Fallbacks {
		switch {
		case n == 0:
		case reason == "budget" && os.Geteuid() != 0: // whose quota of pipes tests of other processes share
			t.Logf("%d fallbacks for reason %q", n, reason)
		default:
			t.Errorf("%d fallbacks for reason %q", n, reason)
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
