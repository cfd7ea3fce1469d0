package server_test

import (
	"crypto/tls"
	"fmt"
	"net"
	"testing"

	"github.com/penstock/penstock/internal/testutil/certificate"
	"github.com/penstock/penstock/internal/testutil/sockets"
)

// TestHeldClientsWithTLSAtAReload: after a reload, held clients on goroutines go where their
// listener leads now. That holds where their TLS ends here, where it begins here, and for an
// upstream without TLS.
func TestHeldClientsWithTLSAtAReload(t *testing.T) {
	t.Parallel()

	cert, key := certificate.New(t, "front.test")
	dead, w, secure := sockets.Refusing(t), named(t, "w"), frontOf(t, cert, key)
	for name, c := range map[string]struct{ ends, begins, to, want string }{
		"ends":                {ends: ", tls: {certificates: [{cert: c.pem, key: k.pem}]}", to: fmt.Sprintf("endpoints: [%q]", w), want: "w"},
		"ends and begins":     {ends: ", tls: {certificates: [{cert: c.pem, key: k.pem}]}", to: fmt.Sprintf("endpoints: [%q], tls: {ca: c.pem, sni: front.test}", secure), want: "ours"},
		"begins":              {begins: ", tls: {ca: c.pem, sni: front.test}", to: fmt.Sprintf("endpoints: [%q], tls: {ca: c.pem, sni: front.test}", secure), want: "ours"},
		"begins, and no more": {begins: ", tls: {ca: c.pem, sni: front.test}", to: fmt.Sprintf("endpoints: [%q]", w), want: "w"},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u%s}]
upstreams: [{name: u, endpoints: [%q], health_check: off, queue: {hold: 2s}%s}]`, c.ends, dead, c.begins), "c.pem", cert, "k.pem", key)
			var conn net.Conn = client(t, r.At("l"))
			defer conn.Close()
			if c.ends != "" {
				over := tls.Client(conn, &tls.Config{ServerName: "front.test", RootCAs: trusting(cert)})
				if err := over.Handshake(); err != nil {
					t.Fatal(err)
				}
				conn = over
			}
			r.Until("the client is held", func() bool { return r.Status().Upstreams[0].Pending == 1 })
			r.Reload(fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: w%s}]
upstreams: [{name: w, %s}]`, c.ends, c.to))
			if got := line(t, conn); got != c.want {
				t.Errorf("the held client: %q, want %q", got, c.want)
			}
		})
	}
}

// TestHeldClientsAtAReload: a reload adds an endpoint to the upstream, has the listener lead to
// another upstream, or adds a fallback. A held client is served by it.
func TestHeldClientsAtAReload(t *testing.T) {
	t.Parallel()

	dead, w := sockets.Refusing(t), named(t, "w")
	held := fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [%q], health_check: off, queue: {hold: %%s}}]`, dead)
	t.Run("an endpoint is added", func(t *testing.T) {
		r := start(t, fmt.Sprintf(held, "1m"))
		c := client(t, r.At("l"))
		defer c.Close()
		r.Until("the client is held", func() bool { return r.Status().Upstreams[0].Pending == 1 })
		r.Reload(fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [%q, %q], health_check: off, queue: {hold: 1m}}]`, dead, w))
		if got := line(t, c); got != "w" {
			t.Error(got)
		}
	})
	t.Run("another upstream", func(t *testing.T) {
		r := start(t, fmt.Sprintf(held, "2s"))
		c := client(t, r.At("l"))
		defer c.Close()
		r.Until("the client is held", func() bool { return r.Status().Upstreams[0].Pending == 1 })
		r.Reload(fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: w}]
upstreams: [{name: w, endpoints: [%q]}]`, w))
		if got := whose(t, r.At("l")); got != "w" {
			t.Error(got)
		}
		if got := line(t, c); got != "w" {
			t.Errorf("the held client: %q", got)
		}
	})
	t.Run("a fallback", func(t *testing.T) {
		r := start(t, fmt.Sprintf(held, "2s"))
		c := client(t, r.At("l"))
		defer c.Close()
		r.Until("the client is held", func() bool { return r.Status().Upstreams[0].Pending == 1 })
		r.Reload(fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams:
- {name: u, endpoints: [%q], health_check: off, fallback: {upstream: w}}
- {name: w, endpoints: [%q]}`, dead, w))
		if got := line(t, c); got != "w" {
			t.Errorf("the held client: %q", got)
		}
	})
}

// TestHeldClientsGetTheNewTLS: an upstream's ca is wrong, so no client gets a connection. When a reload
// corrects it, a client that is held is served at once, as a new one is, and not when its time is over.
func TestHeldClientsGetTheNewTLS(t *testing.T) {
	t.Parallel()

	cert, key := certificate.New(t, "front.test")
	other, _ := certificate.New(t, "front.test")
	secure := frontOf(t, cert, key)
	config := func(ca string) string {
		return fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [%q], health_check: off, queue: {hold: 1m}, tls: {ca: %s, sni: front.test}}]`, secure, ca)
	}
	r := start(t, config("other.pem"), "c.pem", cert, "other.pem", other)
	held := client(t, r.At("l"))
	defer held.Close()
	r.Until("the client is held", func() bool { return r.Status().Upstreams[0].Pending == 1 })
	r.Reload(config("c.pem"))
	fresh := client(t, r.At("l"))
	defer fresh.Close()
	for name, c := range map[string]net.Conn{"held": held, "new": fresh} {
		if got := line(t, c); got != "ours" {
			t.Errorf("the %s client: %q", name, got)
		}
	}
}
