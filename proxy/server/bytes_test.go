package server_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/penstock/penstock/internal/testutil/certificate"
	"github.com/penstock/penstock/internal/testutil/pipequota"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/admin"
)

// sum adds up byte counts.
func sum(list ...admin.Bytes) (all admin.Bytes) {
	add := func(m *admin.ByEngine, o admin.ByEngine) {
		m.Spliced, m.Copied = m.Spliced+o.Spliced, m.Copied+o.Copied
	}
	for _, b := range list {
		add(&all.ClientToEndpoint, b.ClientToEndpoint)
		add(&all.EndpointToClient, b.EndpointToClient)
	}
	return all
}

// bytesAgree checks that the byte counts of the listeners, of the upstreams and of their
// endpoints each add up to those of the process.
func (r *rig) bytesAgree(st *admin.Status) {
	r.T.Helper()
	var listeners, upstreams, endpoints []admin.Bytes
	for _, l := range st.Listeners {
		listeners = append(listeners, l.Bytes)
	}
	for _, u := range st.Upstreams {
		upstreams = append(upstreams, u.Bytes)
		for _, e := range u.Endpoints {
			endpoints = append(endpoints, e.Bytes)
		}
	}
	for name, list := range map[string][]admin.Bytes{"listeners": listeners, "upstreams": upstreams, "endpoints": endpoints} {
		if got := sum(list...); got != st.Bytes {
			r.T.Errorf("the %s moved %+v, the process %+v", name, got, st.Bytes)
		}
	}
}

// TestBytesByEngine: spliced and copied bytes are reported for the process and for each listener,
// upstream and endpoint. Both active and ended sessions count.
func TestBytesByEngine(t *testing.T) {
	t.Parallel()

	pipequota.Share(t)
	const size = 4 << 20
	cert, key := certificate.New(t, "front.test")
	bulk := sockets.Server(t, func(c net.Conn) {
		go func() { _, _ = io.Copy(io.Discard, c) }()
		send(c, size)
		_, _ = io.Copy(io.Discard, c)
	})
	r := start(t, fmt.Sprintf(`
listeners:
  - {name: l, bind: "127.0.0.1:0", upstream: u}
  - {name: m, bind: "127.0.0.1:0", upstream: v}
  - {name: s, bind: "127.0.0.1:0", upstream: v, tls: {certificates: [{cert: c.pem, key: c.key}]}}
upstreams:
  - {name: u, endpoints: [{address: %q, name: e}], health_check: off}
  - {name: v, endpoints: [{address: %q, name: f}], health_check: off}`, bulk, named(t, "up")), "c.pem", cert, "c.key", key)
	c := client(t, r.At("l"))
	if _, err := io.ReadFull(c, make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	other := client(t, r.At("m"))
	line(t, other)
	echoes(t, other, "12345")
	secure, _, err := shake(t, r.At("s"), &tls.Config{ServerName: "front.test", RootCAs: trusting(cert)})
	if err != nil {
		t.Fatal(err)
	}
	echoes(t, secure, "1234567")
	check := func() {
		t.Helper()
		st := r.Status()
		r.bytesAgree(&st)
		e, f := r.Endpoint("u", "e").Bytes, r.Endpoint("v", "f").Bytes
		if to := e.EndpointToClient; to.All() != size || to.Spliced < size/2 || e.ClientToEndpoint.All() != 0 {
			t.Errorf("of %d bytes of bulk: %+v", size, e)
		}
		want := admin.Bytes{ClientToEndpoint: admin.ByEngine{Copied: 5 + 7}, EndpointToClient: admin.ByEngine{Copied: 3 + 5 + 3 + 7}}
		if f != want {
			t.Errorf("of some bytes: %+v, want %+v", f, want)
		}
		if got := r.Listener("s").Bytes; got != (admin.Bytes{ClientToEndpoint: admin.ByEngine{Copied: 7}, EndpointToClient: admin.ByEngine{Copied: 10}}) {
			t.Errorf("of TLS: %+v", got)
		}
	}
	r.Until("the received bytes are counted", func() bool {
		st := r.Status()
		return st.Bytes.EndpointToClient.All() == size+18 && st.Bytes.ClientToEndpoint.All() == 12
	})
	check() // while they run
	for _, c := range []net.Conn{c, other, secure} {
		c.Close()
	}
	r.Until("the sessions have ended", func() bool { return r.Status().Connections.Active == 0 })
	check()
}

// TestBytesOutliveReloads: the byte counts of a listener, an upstream and an endpoint continue
// under the next configuration. The process's counts do not fall when a part of it is removed.
func TestBytesOutliveReloads(t *testing.T) {
	t.Parallel()

	a, b := named(t, "a"), named(t, "b")
	text := func(idle int, endpoints string) string {
		return fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u, timeouts: {idle: %ds}}]
upstreams: [{name: u, endpoints: [%s], health_check: off}]`, idle, endpoints)
	}
	both := fmt.Sprintf("{address: %q, name: a}, {address: %q, name: b}", a, b)
	r := start(t, text(100, both))
	first, second := client(t, r.At("l")), client(t, r.At("l"))
	line(t, first)
	line(t, second)
	first.Close()
	r.Until("one session has ended", func() bool { return r.Status().Connections.Active == 1 })
	before := r.Status()
	r.bytesAgree(&before)
	r.Reload(text(99, both))
	after := r.Status()
	r.bytesAgree(&after)
	if before.Bytes != after.Bytes || after.Bytes.EndpointToClient.Copied != 4 {
		t.Errorf("%+v before a reload, %+v after it", before.Bytes, after.Bytes)
	}
	r.Reload(text(99, fmt.Sprintf("{address: %q, name: c}", a)))
	if after := r.Status(); after.Bytes != before.Bytes || after.Upstreams[0].Bytes != before.Bytes {
		t.Errorf("%+v in all, %+v of the upstream, whose endpoints are gone; want %+v", after.Bytes, after.Upstreams[0].Bytes, before.Bytes)
	}
	second.Close()
	r.Until("the other session has ended", func() bool { return r.Status().Connections.Active == 0 })
	if after := r.Status(); after.Listeners[0].Bytes != before.Bytes || after.Upstreams[0].Bytes != before.Bytes {
		t.Errorf("%+v of the listener, %+v of the upstream, want %+v", after.Listeners[0].Bytes, after.Upstreams[0].Bytes, before.Bytes)
	}
}
