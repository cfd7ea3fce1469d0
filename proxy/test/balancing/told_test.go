package balancing

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/testutil/software"
	"github.com/penstock/penstock/proxy/admin"
)

// testTold routes by a TLS server name behind a PROXY header. HAProxy in front sends the header.
// nginx behind has the certificate, and gets Penstock's header and then the ClientHello.
func testTold(t *testing.T) {
	curl := software.Need(t, "curl", "curl")
	dir := software.Dir(t, nil)
	addr, _, _ := software.Addr(t)
	must(t, writeFile(filepath.Join(dir, "ca.pem"), string(certify(t, filepath.Join(dir, "told"), "told.test"))))
	startNginx(t, dir, addr, fmt.Sprintf(`
	server {
		listen %s ssl proxy_protocol; server_name told.test; ssl_certificate told.pem; ssl_certificate_key told.key;
		location / { return 200 "$ssl_server_name $proxy_protocol_addr $proxy_protocol_port\n"; }
	}`, addr))
	configuration := fmt.Sprintf(`
listeners:
  # EXTRA - {name: extra, bind: "127.0.0.1:0", upstream: told}
  - name: web
    bind: "127.0.0.1:0"
    accept_proxy: {from: ["%s"]}
    timeouts: {idle: IDLE}
    routes: [{match: {sni: [told.test], source: ["%s"]}, upstream: told}]
upstreams:
  - {name: told, endpoints: [%q], send_proxy: 2, health_check: {tls: true, sni: told.test, interval: 200ms, timeout: 2s}}`, inFrontHost, clientHost, addr)
	p := start(t, variant(configuration, 1))
	front, host, port := software.Addr(t)
	to, _, _ := p.at("web")
	startHAProxy(t, front, fmt.Sprintf("\nlisten front\n\tbind %s\n\tserver penstock %s send-proxy-v2 source %s\n", front, to, inFrontHost))

	ask := func(name, from, path string) []string {
		return []string{
			curl, "--silent", "--show-error", "--fail", "--noproxy", "*", "--cacert", filepath.Join(dir, "ca.pem"), "--interface", from,
			"--resolve", name + ":" + port + ":" + host, "--write-out", name + " %{local_ip} %{local_port}\n", "https://" + name + ":" + port + path,
		}
	}
	const times = 50
	lines := strings.Split(strings.TrimSpace(p.readAgain(configuration, ask("told.test", clientHost, fmt.Sprintf("/?[1-%d]", times))...)), "\n")
	if len(lines) != 2*times {
		t.Errorf("%d lines, want two for each of %d requests", len(lines), times)
	}
	for i := 0; i+1 < len(lines); i += 2 {
		if lines[i] != lines[i+1] {
			t.Errorf("nginx reports %q, the truth is %q", lines[i], lines[i+1])
		}
	}
	var before int64 // of the connection by which the test found HAProxy listening, which sends nothing
	p.Until("the clients before are counted", func(s *admin.Status) bool {
		_, reasons := refused(s, "web")
		before = reasons["no_route"]
		return true
	})
	fails(t, ask("wrong.test", clientHost, "/"))
	fails(t, ask("told.test", deniedHost, "/")) // no route matches this source
	p.Until("the two clients without a route are counted", func(s *admin.Status) bool {
		_, reasons := refused(s, "web")
		return reasons["no_route"] == before+2
	})
	p.stop()
}
