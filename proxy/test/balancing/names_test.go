package balancing

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/pipequota"
	"github.com/penstock/penstock/internal/testutil/software"
	"github.com/penstock/penstock/proxy/admin"
)

// startNginx runs nginx with servers, blocks of its configuration.
func startNginx(t *testing.T, dir, addr, servers string) {
	t.Helper()
	worker := "" // the workers of an ordinary user run as that user
	if os.Getuid() == 0 {
		worker = "user root;"
	}
	must(t, writeFile(filepath.Join(dir, "nginx.conf"), fmt.Sprintf(`
daemon off; %s worker_processes 1; pid nginx.pid; error_log stderr;
events {}
http {
	access_log off; keepalive_timeout 0; default_type text/plain; ssl_protocols TLSv1.2 TLSv1.3;
	client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
	uwsgi_temp_path uwsgi; scgi_temp_path scgi;
	%s
}
`, worker, servers)))
	software.Service{
		Command: []string{software.Need(t, "nginx", "nginx"), "-p", dir, "-c", "nginx.conf", "-e", "stderr"},
		Dir:     dir, Addr: addr, Stop: syscall.SIGTERM,
	}.Start(t)
}

const bigSize = 24 << 20

// A site is an nginx with a certificate for each of its names.
type site struct{ name, addr, dir string }

// newSite serves names, and adds their certificates to a bundle.
func newSite(t *testing.T, name string, bundle *strings.Builder, names ...string) *site {
	t.Helper()
	s := &site{name: name, dir: software.Dir(t, nil)}
	s.addr, _, _ = software.Addr(t)
	var servers strings.Builder
	for i, n := range names {
		file := fmt.Sprintf("%s-%d", name, i)
		bundle.Write(certify(t, filepath.Join(s.dir, file), n))
		fmt.Fprintf(&servers, `
	server {
		listen %s ssl http2; server_name %s; ssl_certificate %s.pem; ssl_certificate_key %[3]s.key;
		location / { return 200 "%s $ssl_server_name $ssl_protocol\n"; }
		location /big { root .; }
	}`, s.addr, n, file, name)
	}
	must(t, os.WriteFile(filepath.Join(s.dir, "big"), make([]byte, bigSize), 0o644))
	startNginx(t, s.dir, s.addr, servers.String())
	return s
}

// certify writes a key and a certificate for a name, which it returns.
func certify(t *testing.T, path, name string) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	must(t, os.WriteFile(path+".pem", certificate, 0o644))
	must(t, os.WriteFile(path+".key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), 0o600))
	return certificate
}

// testNames has curl verify that the server of a name has its certificate. TLS is passed through
// to one of two nginx, by the ClientHello.
func testNames(t *testing.T) {
	pipequota.Share(t)
	curl := software.Need(t, "curl", "curl")
	var bundle strings.Builder
	one := newSite(t, "one", &bundle, "alpha.test", "beta.test", "both.test")
	two := newSite(t, "two", &bundle, "*.shop.test", "shop.test", "both.test")
	configuration := fmt.Sprintf(`
listeners:
  # EXTRA - {name: extra, bind: "127.0.0.1:0", upstream: one}
  - name: web
    bind: "127.0.0.1:0"
    timeouts: {idle: IDLE}
    routes:
      - {match: {sni: [alpha.test, beta.test]}, upstream: one}
      - {match: {sni: ["*.shop.test", shop.test]}, upstream: two}
      - {match: {sni: [both.test], alpn: [h2]}, upstream: two}
      - {match: {sni: [both.test]}, upstream: one}
upstreams:
  - {name: one, endpoints: [%q], health_check: {tls: true, sni: alpha.test, interval: 200ms, timeout: 2s}}
  - {name: two, endpoints: [%q], health_check: {tls: true, sni: shop.test, interval: 200ms, timeout: 2s}}`, one.addr, two.addr)
	// nginx writes records of 16 KiB. When they are read one by one, on a busy machine, the auto
	// engine copies them.
	p := start(t, variant(configuration, 1), "--engine", "splice")
	_, host, port := p.at("web")
	must(t, writeFile(p.Dir+"/ca.pem", bundle.String()))
	ask := func(name, path string, flags ...string) []string {
		return append([]string{
			curl, "--silent", "--show-error", "--fail", "--noproxy", "*", "--cacert", p.Dir + "/ca.pem",
			"--resolve", name + ":" + port + ":" + host, "https://" + name + ":" + port + path,
		}, flags...)
	}

	for name, test := range map[string]struct {
		flags []string
		want  string
	}{
		"alpha.test":      {nil, "one alpha.test TLSv1.3"},
		"beta.test":       {[]string{"--tls-max", "1.2"}, "one beta.test TLSv1.2"},
		"shop.test":       {nil, "two shop.test TLSv1.3"},
		"a.shop.test":     {nil, "two a.shop.test TLSv1.3"},
		"A.Shop.test":     {[]string{"--http1.1"}, "two a.shop.test TLSv1.3"},
		"both.test":       {[]string{"--http2"}, "two both.test TLSv1.3"},
		"both.test:plain": {[]string{"--http1.1"}, "one both.test TLSv1.3"},
	} {
		name, _, _ = strings.Cut(name, ":")
		if got := strings.TrimSpace(software.Run(t, ask(name, "/", test.flags...)...)); !strings.EqualFold(got, test.want) {
			t.Errorf("%s %v gets the answer %q, want %q", name, test.flags, got, test.want)
		}
	}

	const couldNotConnectTLS, emptyReply, reset = 35, 52, 56
	refusals := 0
	for name, command := range map[string][]string{
		"wrong.test": ask("wrong.test", "/", "--insecure"), "test": ask("test", "/", "--insecure"),
		"no name": {curl, "--silent", "--insecure", "--noproxy", "*", "https://" + host + ":" + port},
	} {
		if code := fails(t, command); code != couldNotConnectTLS && code != reset {
			t.Errorf("%s ends curl with %d, want its TLS to fail", name, code)
		}
		refusals++
	}
	if code := fails(t, []string{curl, "--silent", "--noproxy", "*", "http://" + host + ":" + port}); code != emptyReply && code != reset {
		t.Errorf("a client without TLS ends curl with %d", code)
	}
	p.Until("the refusals are counted", func(s *admin.Status) bool {
		n, reasons := refused(s, "web")
		return n == int64(refusals)+1 && reasons["no_route"] == n
	})

	// One connection for each: nginx keeps none alive.
	const times = 150
	out := p.readAgain(configuration, ask("a.shop.test", fmt.Sprintf("/?[1-%d]", times))...)
	if got := strings.Count(out, "two a.shop.test"); got != times {
		t.Errorf("%d answers of %d during reloads", got, times)
	}
	if got := p.readAgain(configuration, ask("alpha.test", "/big", "--limit-rate", "32M", "--output", "-", "--write-out", "%{stderr}%{size_download}")...); len(got) != bigSize {
		t.Errorf("%d bytes of %d during reloads", len(got), bigSize)
	}
	// The size of reads, and so the part that is spliced, depends on the machine. nginx closes first: what curl then sends is lost, a
	// closing alert of TLS in each session.
	if s := p.stop(); s.Bytes.EndpointToClient.Spliced == 0 || s.Bytes.EndpointToClient.Spliced+s.Bytes.EndpointToClient.Copied < bigSize || s.Connections.Refused != int64(refusals)+1 || s.Lost > 64*s.Connections.Accepted {
		t.Errorf("the summary is %+v, want a file of %d bytes, spliced at least in part, none of it lost, and %d clients refused", s, bigSize, refusals+1)
	}
}

// fails runs a client that must fail, and returns its exit code.
func fails(t *testing.T, command []string) int {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), command[0], command[1:]...).Output()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		t.Fatalf("%s: %v, want it to fail\n%s", strings.Join(command, " "), err, out)
	}
	return exit.ExitCode()
}
