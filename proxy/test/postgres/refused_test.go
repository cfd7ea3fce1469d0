package postgres

import (
	"fmt"
	"net"
	"testing"

	"github.com/penstock/penstock/internal/testutil/certificate"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/internal/testutil/software"
	"github.com/penstock/penstock/proxy/internal/testutil/loadbalancer"
)

// TestRefusedClients: psql shows why it is refused, in the clear and within TLS that ends here.
func TestRefusedClients(t *testing.T) {
	software.Need(t, "psql", "postgresql-client")
	cert, key := certificate.New(t, "front.test")
	r := loadbalancer.Start(t, fmt.Sprintf(`
listeners:
  - {name: pass, bind: "127.0.0.1:0", postgres: passthrough, routes: [{match: {user: [ann]}, upstream: u}]}
  - {name: ends, bind: "127.0.0.1:0", postgres: terminate, tls: {certificates: [{cert: c.pem, key: k.pem}]}, routes: [{match: {user: [ann]}, upstream: u}]}
  - {name: first, bind: "127.0.0.1:0", routes: [{match: {user: [ann]}, upstream: u}]}
  - {name: denies, bind: "127.0.0.1:0", postgres: passthrough, deny: [127.0.0.0/8], upstream: u}
  - {name: limits, bind: "127.0.0.1:0", postgres: passthrough, limits: {per_source: 1}, timeouts: {preread: 1m}, upstream: u}
upstreams: [{name: u, endpoints: [%q], health_check: off, queue: {hold: 0s}, retry: {attempts: 0}}]`, sockets.Refusing(t)), "c.pem", cert, "k.pem", key)
	held, err := net.Dial("tcp", r.At("limits")) // which says nothing
	must(t, err)
	defer held.Close()
	r.Until("a client has the place of its source", func() bool { return r.Listener("limits").Connections.Accepted == 1 })
	const route, server = "failed: .*FATAL:  the proxy has no route for this user", "failed: .*FATAL:  the proxy can reach no server"
	for _, c := range []struct{ of, settings, want string }{
		{"pass", "sslmode=disable", route},
		{"pass", "sslmode=disable user=ann", server},
		{"ends", "sslmode=disable", route},
		{"ends", "sslmode=require", route},
		{"ends", "sslmode=require user=ann", server},
		{"first", "sslmode=disable", route},
		{"denies", "sslmode=disable", "failed: .*FATAL:  the proxy does not admit this client"},
		{"limits", "sslmode=disable", "failed: .*FATAL:  the proxy has too many connections"},
	} {
		wantAnswer(t, clientOf(t, r, c.of).ask(c.settings, "SELECT 1"), c.of+" "+c.settings, c.want)
	}
	if n := r.Refused("ends", "no_route"); n != 2 {
		t.Errorf("%d are counted as refused for want of a route, want 2", n)
	}
}
