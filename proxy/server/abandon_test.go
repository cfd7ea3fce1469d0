package server_test

import (
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/testutil/certificate"
	"github.com/penstock/penstock/internal/testutil/sockets"
)

// TestConnectingClientsAtAReload: a reload takes an endpoint away to which a client is being connected, in
// vain, or has the listener lead elsewhere. The client is not kept there for the whole connect timeout.
// The same holds for a client on a goroutine.
func TestConnectingClientsAtAReload(t *testing.T) {
	t.Parallel()
	cert, key := certificate.New(t, "front.test")
	for name, listener := range map[string]string{
		"plain": `{name: l, bind: "127.0.0.1:0", timeouts: {connect: 10m}, upstream: %s}`,
		"TLS":   `{name: l, bind: "127.0.0.1:0", timeouts: {connect: 10m}, tls: {certificates: [{cert: c.pem, key: k.pem}]}, upstream: %s}`,
	} {
		for change, after := range map[string]string{
			"the endpoint is removed": `[{name: u, endpoints: [%q], health_check: off}]`,
			"another upstream":        `[{name: w, endpoints: [%q], health_check: off}]`,
			"a fallback is added":     `[{name: u, endpoints: [SILENT], health_check: off, fallback: {upstream: f}}, {name: f, endpoints: [%q]}]`,
			"renamed, with another":   `[{name: w, endpoints: [SILENT, %q], health_check: off}]`,
		} {
			t.Run(name+"/"+change, func(t *testing.T) {
				t.Parallel()
				silent := sockets.Silent(t)
				after := strings.ReplaceAll(after, "SILENT", fmt.Sprintf("%q", silent))
				r := start(t, fmt.Sprintf("listeners: ["+listener+"]\nupstreams: [{name: u, endpoints: [%q], health_check: off}]", "u", silent),
					"c.pem", cert, "k.pem", key)
				var conn net.Conn = client(t, r.At("l"))
				defer conn.Close()
				if name == "TLS" {
					over := tls.Client(conn, &tls.Config{ServerName: "front.test", RootCAs: trusting(cert)})
					if err := over.Handshake(); err != nil {
						t.Fatal(err)
					}
					conn = over
				}
				r.Until("the client is being connected", func() bool { return r.Status().Upstreams[0].Endpoints[0].Active == 1 })
				r.Until("the status says so", func() bool { return r.Status().Upstreams[0].Endpoints[0].Connecting != nil })
				r.Reload(fmt.Sprintf("listeners: ["+listener+"]\nupstreams: "+after, after[8:9], named(t, "well")))
				if got := line(t, conn); got != "well" {
					t.Errorf("the client: %q", got)
				}
			})
		}
	}
}

// TestFullBesideADeadOne: an endpoint without a verdict refuses, and the one that serves is at its limit. The
// upstream is reported as full.
func TestFullBesideADeadOne(t *testing.T) {
	t.Parallel()
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams:
  - {name: u, endpoints: [{address: %q, name: dead}, {address: %q, name: full, connections: 1}],
     health_check: off, outlier_detection: off, circuit_breaker: off, queue: {timeout: 1m}}`, sockets.Refusing(t), named(t, "full")))
	first := client(t, r.At("l"))
	defer first.Close()
	if got := line(t, first); got != "full" {
		t.Fatal(got)
	}
	second := client(t, r.At("l"))
	defer second.Close()
	r.Until("the upstream is full", func() bool { o := r.Status().Upstreams[0].Outage; return o != nil && o.Full })
	r.Logs("level=WARN", "every usable endpoint of the upstream is at its limit", "upstream=u")
	first.Close()
	if got := line(t, second); got != "full" {
		t.Errorf("the client that waited: %q", got)
	}
	second.Close()
	r.Until("it is full no more", func() bool { o := r.Status().Upstreams[0].Outage; return o == nil || !o.Full })
}

// TestPendingConnectsMakeRoom: the one connection that circuit_breaker.pending allows is being made to an
// endpoint that does not answer, so a second client waits for room. Neither is kept until the connect timeout:
// both are served by the endpoint that answers.
func TestPendingConnectsMakeRoom(t *testing.T) {
	t.Parallel()

	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", timeouts: {connect: 10m}, upstream: u}]
upstreams:
  - {name: u, endpoints: [{address: %q, name: silent, weight: 100}, {address: %q, name: well}], balance: round_robin,
     health_check: off, circuit_breaker: {pending: 1}, queue: {timeout: 10m}}`, sockets.Silent(t), named(t, "well")))
	first := client(t, r.At("l"))
	defer first.Close()
	r.Until("the client is being connected", func() bool { return r.Status().Upstreams[0].Endpoints[0].Active == 1 })
	second := client(t, r.At("l"))
	defer second.Close()
	for name, c := range map[string]net.Conn{"first": first, "second": second} {
		if got := line(t, c); got != "well" {
			t.Errorf("the %s client: %q", name, got)
		}
	}
	r.Until("room", func() bool {
		u := r.Status().Upstreams[0]
		return u.Connecting == 0 && u.MostConnecting == 1 && u.Pending == 0
	})
}
