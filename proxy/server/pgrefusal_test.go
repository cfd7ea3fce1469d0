package server_test

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/testutil/sockets"
)

// TestPostgresRefusalAnswers: a client of PostgreSQL that is refused gets an ErrorResponse with the SQLSTATE of the cause, and
// then the end of file; one whose first message has not come, and one that speaks TLS to the endpoint, are reset.
func TestPostgresRefusalAnswers(t *testing.T) {
	t.Parallel()

	full := named(t, "full")
	r := start(t, fmt.Sprintf(`
listeners:
  - {name: filter, bind: "127.0.0.1:0", postgres: passthrough, upstream: full, filter: {wasm: denies.wasm, timeout: 10s}}
  - {name: first, bind: "127.0.0.1:0", routes: [{match: {protocol: [postgres]}, upstream: full, filter: {wasm: denies.wasm, timeout: 10s}}]}
  - {name: route, bind: "127.0.0.1:0", postgres: passthrough, routes: [{match: {user: [eve]}, upstream: full}]}
  - {name: full, bind: "127.0.0.1:0", postgres: passthrough, upstream: full}
  - {name: dead, bind: "127.0.0.1:0", postgres: passthrough, upstream: dead}
upstreams:
  - {name: full, endpoints: [{address: %q, connections: 1}], health_check: off, queue: {size: 0}}
  - {name: dead, endpoints: [%q], health_check: off, queue: {hold: 0s}, retry: {attempts: 0}}`, full, sockets.Refusing(t)), "denies.wasm", gateModule(true))
	occupies := client(t, r.At("full"))
	fmt.Fprint(occupies, startup)
	line(t, occupies)
	for of, code := range map[string]string{"filter": "28000", "first": "28000", "route": "08004", "full": "53300", "dead": "57P03"} {
		c := client(t, r.At(of))
		fmt.Fprint(c, startup)
		b, err := io.ReadAll(c)
		if got := string(b); err != nil || !strings.HasPrefix(got, "E") || !strings.Contains(got, "SFATAL\x00VFATAL\x00C"+code+"\x00M") {
			t.Errorf("%s: %q, %v, want an ErrorResponse with %s", of, got, err, code)
		}
	}
	for _, text := range []string{"GET / HTTP/1.1\r\n\r\n", sslRequest + sslRequest} {
		c := client(t, r.At("route"))
		fmt.Fprint(c, text)
		if b, err := io.ReadAll(c); len(b) > 0 || err == nil {
			t.Errorf("after %q: %q, %v", text, b, err)
		}
	}
	c := client(t, r.At("filter"))
	fmt.Fprint(c, sslRequest)
	expect(t, c, "S")
	c2, err := hello(t, r.At("route"), "a.test")
	if err == nil {
		t.Error("a handshake with no endpoint")
	}
	c2.Close()
}
