package postgres

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/testutil/certificate"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/internal/testutil/loadbalancer"
)

// TestPassthrough: psql's SSLRequest is answered here, its ClientHello routes, and the endpoint is asked for TLS in turn.
func TestPassthrough(t *testing.T) {
	a, b, plain := newDatabase(t, "a", "a.test"), newDatabase(t, "b", "b.test"), newDatabase(t, "plain", "")
	r := loadbalancer.Start(t, fmt.Sprintf(`
listeners:
  - name: l
    bind: "127.0.0.1:0"
    postgres: passthrough
    routes: [{match: {sni: [a.test]}, upstream: a}, {match: {sni: [b.test]}, upstream: b}]
    upstream: plain
  - {name: required, bind: "127.0.0.1:0", postgres: passthrough, require_tls: true, upstream: a}
upstreams:
  - {name: a, endpoints: [%q]}
  - {name: b, endpoints: [%q], health_check: {tls: true, interval: 50ms, timeout: 2s, send: "", expect: ""}, starttls: postgres}
  - {name: plain, endpoints: [%q], queue: {hold: 0s}, retry: {attempts: 0}}`, a.addr, b.addr, plain.addr))
	p, required := clientOf(t, r, "l"), clientOf(t, r, "required")
	for _, c := range []struct {
		of             *psql
		settings, want string
	}{
		{p, "host=a.test sslmode=require", "a true"},
		{p, "host=b.test sslmode=require", "b true"},
		{p, "host=a.test sslmode=prefer", "a true"},
		{p, "host=a.test sslmode=verify-full sslrootcert=" + a.root, "a true"},
		{p, "host=b.test sslmode=verify-full sslrootcert=" + b.root, "b true"},
		{p, "host=b.test sslmode=verify-full sslrootcert=" + a.root, "failed: .*certificate verify failed"},
		{p, "host=a.test sslmode=disable", "plain false"},
		{p, "host=c.test sslmode=require", "failed: "},
		{p, "host=c.test sslmode=prefer", "plain false"}, // psql connects again without TLS
		{required, "host=a.test sslmode=require", "a true"},
		{required, "host=a.test sslmode=disable", "failed: .*this server requires TLS"},
		{required, "host=a.test sslmode=allow", "a true"}, // which tries without TLS first
	} {
		wantAnswer(t, c.of.ask(c.settings, where), c.settings, c.want)
	}
	p.replicates("host=a.test sslmode=require", "true", "database")
	p.replicates("host=a.test sslmode=disable", "true", "database")
	p.cancels("host=a.test sslmode=require", sleeps(t, a))
	p.cancels("host=a.test sslmode=disable", sleeps(t, plain))
	if n := r.Refused("l", "endpoint_tls"); n != 2 {
		t.Errorf("%d clients were refused for want of TLS at the endpoint, want 2", n)
	}
	if n := r.Refused("required", "unencrypted"); n != 2 {
		t.Errorf("%d clients were refused for want of TLS, want 2", n)
	}
	if c := r.Listener("l").Cancels; c.Requests != 2 || c.Sent != 6 || c.Failed != 0 {
		t.Errorf("requests to cancel: %+v, want 2 to 3 endpoints each", *c)
	}
	if e := r.Endpoint("b", b.addr); e.State != admin.Up {
		t.Errorf("b is %s by its check over TLS", e.State)
	}
	before := r.Listener("l").Bytes.EndpointToClient.Spliced
	if !condition.Eventually(func() bool { // a session begins by copying, and splices what is found to be bulk
		out, err := p.command("host=a.test sslmode=require", "SELECT repeat('x', 8000000)").Output()
		if err != nil || len(out) != 8000001 {
			t.Fatalf("%d bytes, %v", len(out), err)
		}
		return r.Listener("l").Bytes.EndpointToClient.Spliced > before
	}) {
		t.Error("no bytes of TLS are spliced")
	}
}

// wantAnswer compares an answer with a text, or for "failed: .*" the error.
func wantAnswer(t *testing.T, got, settings, want string) {
	t.Helper()
	beginning, part, _ := strings.Cut(want, ".*")
	if part == "" && beginning == "failed: " || part != "" {
		if !strings.HasPrefix(got, beginning) || !strings.Contains(got, part) {
			t.Errorf("%s: %s, want %s", settings, got, want)
		}
	} else if got != want {
		t.Errorf("%s: %s, want %s", settings, got, want)
	}
}

// TestTerminate: TLS ends here, and the startup message within it routes; TLS to the endpoint begins by an SSLRequest.
func TestTerminate(t *testing.T) {
	a, b := newDatabase(t, "a", "a.test"), newDatabase(t, "b", "")
	cert, key := certificate.New(t, "front.test", "other.test")
	root, err := os.ReadFile(a.root)
	must(t, err)
	r := loadbalancer.Start(t, fmt.Sprintf(`
listeners:
  - name: l
    bind: "127.0.0.1:0"
    postgres: terminate
    tls: {certificates: [{cert: c.pem, key: k.pem}]}
    routes:
      - {match: {user: [penstock], database: [postgres], sni: [other.test]}, upstream: b}
      - {match: {database: [postgres]}, upstream: a}
      - {match: {user: [ann]}, upstream: b}
    upstream: plain
  - {name: required, bind: "127.0.0.1:0", postgres: terminate, require_tls: true, tls: {certificates: [{cert: c.pem, key: k.pem}]}, upstream: b}
upstreams:
  - {name: a, endpoints: [%q], starttls: postgres, tls: {ca: a.pem, sni: a.test}, health_check: {tls: true, interval: 50ms, timeout: 2s}}
  - {name: b, endpoints: [%[2]q]}
  - {name: plain, endpoints: [%[2]q], starttls: postgres, tls: {ca: a.pem, sni: a.test}, queue: {hold: 0s}, retry: {attempts: 0}, health_check: off}`,
		a.addr, b.addr), "c.pem", cert, "k.pem", key, "a.pem", string(root))
	p, required, front := clientOf(t, r, "l"), clientOf(t, r, "required"), r.Dir+"/c.pem"
	for _, c := range []struct {
		of             *psql
		settings, want string
	}{
		{p, "host=front.test sslmode=require", "a true"},
		{p, "host=front.test sslmode=prefer", "a true"},
		{p, "host=front.test sslmode=verify-full sslrootcert=" + front, "a true"},
		{p, "host=wrong.test sslmode=verify-full sslrootcert=" + front, "failed: .*does not match host name"},
		{p, "host=other.test sslmode=verify-full sslrootcert=" + front, "b false"},
		{p, "host=front.test sslmode=disable", "a true"}, // by TLS that begins here
		{p, "host=front.test sslmode=require user=ann dbname=x", `failed: .*role "ann" does not exist`},
		{p, "host=front.test sslmode=disable user=ann dbname=x", `failed: .*role "ann" does not exist`},
		{p, "host=front.test sslmode=require user=eve dbname=x", "failed: "},
		{required, "host=front.test sslmode=require", "b false"},
		{required, "host=front.test sslmode=disable", "failed: .*this server requires TLS"},
	} {
		wantAnswer(t, c.of.ask(c.settings, where), c.settings, c.want)
	}
	required.replicates("host=front.test sslmode=require", "true", "database")
	for _, all := range []string{"database", "true", "on", "yes", "1"} { // each can copy all databases: no client of the route by database
		wantAnswer(t, p.ask("host=front.test sslmode=require replication="+all, "IDENTIFY_SYSTEM"), "replication="+all, "failed: ")
	}
	p.cancels("host=front.test sslmode=require", sleeps(t, a))
	p.cancels("host=other.test sslmode=require", sleeps(t, b))
	p.cancels("host=front.test sslmode=disable", sleeps(t, a))
	if n := r.Refused("l", "endpoint_tls"); n != 1 {
		t.Errorf("%d clients were refused for want of TLS at the endpoint, want 1", n)
	}
	if n := r.Refused("required", "unencrypted"); n != 1 {
		t.Errorf("%d clients were refused for want of TLS, want 1", n)
	}
	if e := r.Endpoint("a", a.addr); e.State != admin.Up {
		t.Errorf("a is %s by its check over TLS", e.State)
	}
	if out, err := p.command("host=front.test sslmode=require", "SELECT repeat('x', 8000000)").Output(); err != nil || len(out) != 8000001 {
		t.Errorf("%d bytes, %v", len(out), err)
	}
}
