package server_test

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"testing"

	"github.com/penstock/penstock/internal/testutil/certificate"
	"github.com/penstock/penstock/proxy/internal/testutil/loadbalancer"
)

// TestEndedSessionsAreNamed: the log names ended sessions if so configured, with their listener
// and endpoint. That includes TLS sessions.
func TestEndedSessionsAreNamed(t *testing.T) {
	t.Parallel()

	cert, key := certificate.New(t, "front.test")
	a := named(t, "a")
	r := &rig{loadbalancer.Setting{Level: slog.LevelDebug}.Start(t, fmt.Sprintf(`
listeners:
  - {name: l, bind: "127.0.0.1:0", upstream: u}
  - {name: s, bind: "127.0.0.1:0", upstream: u, tls: {certificates: [{cert: c.pem, key: c.key}]}}
upstreams: [{name: u, endpoints: [{address: %q, name: e}], health_check: off}]`, a), "c.pem", cert, "c.key", key)}
	c := client(t, r.At("l"))
	line(t, c)
	c.Close()
	r.Logs("session ended", "listener=l", "upstream=u", "endpoint=e", "endpoint_address="+a, "client="+c.LocalAddr().String())
	secure, _, err := shake(t, r.At("s"), &tls.Config{ServerName: "front.test", RootCAs: trusting(cert)})
	if err != nil {
		t.Fatal(err)
	}
	secure.Close()
	r.Logs("session ended", "listener=s", "upstream=u", "endpoint=e", "endpoint_address="+a)
}
