package balancing

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/software"
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
	}`, s.addr, n, file, name)
	}
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
