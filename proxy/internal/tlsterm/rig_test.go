package tlsterm_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/internal/tlsterm"
)

func TestMain(m *testing.M) { leak.Main(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

type authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  crypto.Signer
	file string
}

var serial atomic.Int64

func newKey(t testing.TB) crypto.Signer {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	return key
}

func newAuthority(t testing.TB, name string) *authority {
	t.Helper()
	a := &authority{t: t, key: newKey(t)}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial.Add(1)), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	must(t, err)
	a.cert, err = x509.ParseCertificate(der)
	must(t, err)
	a.file = filepath.Join(t.TempDir(), "ca.pem")
	must(t, os.WriteFile(a.file, encode("CERTIFICATE", der), 0o600))
	return a
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// sign makes a certificate for names (or IP addresses) and key, and returns both.
func (a *authority) sign(key crypto.Signer, names ...string) (cert, keyText []byte) {
	a.t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial.Add(1)), Subject: pkix.Name{CommonName: names[0]},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	return a.issue(template, key)
}

func (a *authority) issue(template *x509.Certificate, key crypto.Signer) (cert, keyText []byte) {
	a.t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	must(a.t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	must(a.t, err)
	return encode("CERTIFICATE", der), encode("PRIVATE KEY", keyDER)
}

func (a *authority) pair(names ...string) tlsterm.Pair {
	a.t.Helper()
	return a.pairOf(newKey(a.t), names...)
}

func (a *authority) pairOf(key crypto.Signer, names ...string) tlsterm.Pair {
	a.t.Helper()
	dir := a.t.TempDir()
	p := tlsterm.Pair{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
	cert, keyText := a.sign(key, names...)
	must(a.t, os.WriteFile(p.Cert, cert, 0o600))
	must(a.t, os.WriteFile(p.Key, keyText, 0o600))
	return p
}

func rsaKey(t testing.TB) crypto.Signer {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	return key
}

func serialOf(t testing.TB, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	must(t, err)
	block, _ := pem.Decode(text)
	cert, err := x509.ParseCertificate(block.Bytes)
	must(t, err)
	return cert.SerialNumber.String()
}

// newServer is NewServer for a configuration that must be good; it is closed at the end.
func newServer(t testing.TB, cfg tlsterm.Config) *tlsterm.Server {
	t.Helper()
	s, err := tlsterm.NewServer(&cfg)
	must(t, err)
	t.Cleanup(s.Close)
	return s
}

func newFiles(t testing.TB, cfg *tlsterm.FilesConfig) *tlsterm.Files {
	t.Helper()
	f := tlsterm.NewFiles(cfg)
	t.Cleanup(f.Close)
	return f
}

// meet lets a client and a server do a handshake over a connection of their own. Then the
// client reads the server's data. By that it gets its ticket, or learns that it is
// refused.
func meet(t testing.TB, s *tlsterm.Server, client *tls.Config) (seen tls.ConnectionState, clientErr, serverErr error) {
	t.Helper()
	c, sc := sockets.TCPPair(t)
	defer c.Close()
	done := make(chan error, 1)
	go func() {
		conn, err := s.Handshake(context.Background(), sc)
		if err == nil {
			_, err = conn.Write([]byte("hello"))
		}
		sc.CloseWrite()
		done <- err
	}()
	conn := tls.Client(c, client)
	clientErr = conn.Handshake()
	if clientErr == nil {
		_, clientErr = conn.Read(make([]byte, 5))
	}
	seen = conn.ConnectionState()
	c.CloseWrite()
	return seen, clientErr, <-done
}

// serve is a server behind a listener: it echoes until the test ends.
func serve(t testing.TB, s *tlsterm.Server) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	sockets.Serve(t, l, func(c net.Conn) {
		if conn, err := s.Handshake(context.Background(), c); err == nil {
			sockets.Echo(conn)
		}
	})
	return l.Addr().String()
}
