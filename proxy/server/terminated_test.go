package server_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/certificate"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/admin"
)

// shake connects a TLS client with a configuration. A client's error shows at the first line,
// since in TLS 1.3 its handshake ends before its certificate is verified.
func shake(t *testing.T, address string, cfg *tls.Config) (c *tls.Conn, says string, err error) {
	t.Helper()
	raw, err := net.DialTimeout("tcp", address, patience)
	if err != nil {
		return nil, "", err
	}
	t.Cleanup(func() { raw.Close() })
	_ = raw.SetDeadline(time.Now().Add(patience))
	c = tls.Client(raw, cfg)
	if err = c.Handshake(); err == nil {
		says, err = sockets.ReadLine(c)
	}
	return c, says, err
}

// trusting returns the certificates of authorities.
func trusting(cert string) *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(cert))
	return pool
}

// TestMutualTLS: clients must present a certificate, and endpoints are presented one.
func TestMutualTLS(t *testing.T) {
	t.Parallel()

	cert, key := certificate.New(t, "front.test")
	mine, mineKey := certificate.New(t, "client.test")
	pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
	if err != nil {
		t.Fatal(err)
	}
	own, err := tls.X509KeyPair([]byte(mine), []byte(mineKey))
	if err != nil {
		t.Fatal(err)
	}
	strict := sockets.Server(t, func(c net.Conn) {
		s := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: trusting(mine)})
		if s.Handshake() == nil {
			fmt.Fprintf(s, "%s\n", s.ConnectionState().PeerCertificates[0].Subject.CommonName)
		}
	})
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", tls: {certificates: [{cert: c.pem, key: c.key}], client_ca: mine.pem, min_version: "1.3"}, upstream: u}]
upstreams: [{name: u, endpoints: [%q], tls: {ca: c.pem, sni: front.test, cert: mine.pem, key: mine.key}}]`, strict),
		"c.pem", cert, "c.key", key, "mine.pem", mine, "mine.key", mineKey)
	cfg := &tls.Config{ServerName: "front.test", RootCAs: trusting(cert), Certificates: []tls.Certificate{own}}
	if _, says, err := shake(t, r.At("l"), cfg); says != "client.test" {
		t.Errorf("%q, %v", says, err)
	}
	if _, says, err := shake(t, r.At("l"), &tls.Config{ServerName: "front.test", RootCAs: trusting(cert)}); err == nil {
		t.Errorf("a client without a certificate got %q", says)
	}
	old := cfg.Clone()
	old.MaxVersion = tls.VersionTLS12
	if _, says, err := shake(t, r.At("l"), old); err == nil {
		t.Errorf("a client with TLS 1.2 got %q", says)
	}
	r.Until("both clients are counted", func() bool { return r.Refused("l", "tls") == 2 })
	for path, has := range map[string]struct {
		list []admin.Certificate
		of   tls.Certificate
	}{"c.pem": {r.Listener("l").Certificates, pair}, "mine.pem": {r.Status().Upstreams[0].Certificates, own}} {
		want := admin.Certificate{Path: filepath.Join(r.Dir, path), From: has.of.Leaf.NotBefore, Ends: has.of.Leaf.NotAfter}
		if !slices.Equal(has.list, []admin.Certificate{want}) {
			t.Errorf("%s in the status is %+v, want %+v", path, has.list, want)
		}
	}
}

// TestCertificatesChange: certificates are chosen by name and change as their files are replaced,
// while sessions continue. Files that do not match each other change nothing and are logged.
func TestCertificatesChange(t *testing.T) {
	t.Parallel()

	a, aKey := certificate.New(t, "a.test")
	b, bKey := certificate.New(t, "*.b.test")
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", tls: {certificates: [{cert: a.pem, key: a.key}, {cert: b.pem, key: b.key}]}, upstream: u}]
upstreams: [{name: u, endpoints: [%q]}]`, named(t, "up")), "a.pem", a, "a.key", aKey, "b.pem", b, "b.key", bKey)
	shown := func(name string) string {
		c, err := hello(t, r.At("l"), name)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return string(c.ConnectionState().PeerCertificates[0].Raw)
	}
	before := shown("a.test")
	if other := shown("x.b.test"); other == before {
		t.Error("both names get the same certificate")
	}
	c, err := hello(t, r.At("l"), "a.test")
	if err != nil {
		t.Fatal(err)
	}
	line(t, c)
	r.Write("a.key", bKey)
	r.Until("the mismatch is logged", func() bool { return strings.Contains(r.Log.String(), "certificates not changed") })
	if shown("a.test") != before {
		t.Error("files that do not match were used")
	}
	next, nextKey := certificate.New(t, "a.test")
	r.Write("a.pem", next)
	r.Write("a.key", nextKey)
	r.Until("the new certificate is used", func() bool { return shown("a.test") != before })
	echoes(t, c, "of the old one")
}

// TestRefusedAuthorities: a file of authorities that cannot be used is in the status of the listener and of the upstream, which makes a problem of it, until it can.
func TestRefusedAuthorities(t *testing.T) {
	t.Parallel()

	cert, key := certificate.New(t, "front.test")
	r := start(t, `
listeners: [{name: l, bind: "127.0.0.1:0", tls: {certificates: [{cert: c.pem, key: c.key}], client_ca: ca.pem}, upstream: u}]
upstreams: [{name: u, endpoints: ["127.0.0.1:1"], health_check: off, tls: {ca: ca.pem}}]`, "c.pem", cert, "c.key", key, "ca.pem", cert)
	refused := func() (n int) {
		for _, text := range []string{r.Listener("l").AuthoritiesRefused, r.Status().Upstreams[0].AuthoritiesRefused} {
			if strings.Contains(text, "ca.pem: there is no certificate in it") {
				n++
			}
		}
		return n
	}
	if n := refused(); n != 0 {
		t.Fatalf("%d problems of good authorities", n)
	}
	r.Write("ca.pem", "nothing")
	r.Until("both have the problem", func() bool { return refused() == 2 })
	r.Write("ca.pem", cert)
	r.Until("neither has it", func() bool { return refused() == 0 })
}

// TestTicketsOutliveReloads: a client's TLS session is resumed under the next configuration.
func TestTicketsOutliveReloads(t *testing.T) {
	t.Parallel()

	cert, key := certificate.New(t, "front.test")
	text := `
listeners: [{name: l, bind: "127.0.0.1:%s", tls: {certificates: [{cert: c.pem, key: c.key}]}, upstream: u, timeouts: {idle: %ds}}]
upstreams: [{name: u, endpoints: [%q]}]`
	port, up := sockets.Port(t), named(t, "up")
	r := start(t, fmt.Sprintf(text, port, 100, up), "c.pem", cert, "c.key", key)
	cfg := &tls.Config{ServerName: "front.test", RootCAs: trusting(cert), ClientSessionCache: tls.NewLRUClientSessionCache(1)}
	if c, _, err := shake(t, r.At("l"), cfg); err != nil || c.ConnectionState().DidResume {
		t.Fatalf("the first: %v", err)
	}
	for i := range 3 {
		r.Reload(fmt.Sprintf(text, port, 200+i, up))
		if c, _, err := shake(t, r.At("l"), cfg); err != nil || !c.ConnectionState().DidResume {
			t.Errorf("after reload %d: not resumed, %v", i, err)
		}
	}
}

// TestTerminatedTellsTLVs: a client's TLS ends here. PROXY v2 reports the server name it asked
// for to its endpoint, and it is routed by that name.
func TestTerminatedTellsTLVs(t *testing.T) {
	t.Parallel()

	cert, key := certificate.New(t, "*.front.test")
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", tls: {certificates: [{cert: c.pem, key: c.key}]}, routes: [{match: {sni: [a.front.test]}, upstream: a}], upstream: b}]
upstreams: [{name: a, endpoints: [%q], send_proxy: 2, health_check: off}, {name: b, endpoints: [%q]}]`, told(t), named(t, "b")), "c.pem", cert, "c.key", key)
	c, says, err := shake(t, r.At("l"), &tls.Config{ServerName: "a.front.test", RootCAs: trusting(cert)})
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("v2 from %v to %v name a.front.test", c.LocalAddr(), c.RemoteAddr()); says != want {
		t.Errorf("%q, want %q", says, want)
	}
	if _, says, err := shake(t, r.At("l"), &tls.Config{ServerName: "b.front.test", RootCAs: trusting(cert)}); says != "b" {
		t.Errorf("%q, %v", says, err)
	}
}

// TestTLSSessionsHaveALimit: TLS sessions have a limit of their own, half of the connections.
// Other clients are served.
func TestTLSSessionsHaveALimit(t *testing.T) {
	t.Parallel()

	cert, key := certificate.New(t, "front.test")
	up := named(t, "up")
	r := startWith(t, 6, fmt.Sprintf(`
listeners: [{name: tls, bind: "127.0.0.1:0", tls: {certificates: [{cert: c.pem, key: c.key}]}, upstream: u}, {name: plain, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [%q]}]`, up), "c.pem", cert, "c.key", key)
	for range 3 {
		c, err := hello(t, r.At("tls"), "front.test")
		if err != nil {
			t.Fatal(err)
		}
		line(t, c)
	}
	if _, _, err := shake(t, r.At("tls"), &tls.Config{InsecureSkipVerify: true}); err == nil || errors.Is(err, errTimeout) {
		t.Errorf("%v, want the client refused", err)
	}
	r.Until("the refusal is counted", func() bool { return r.Refused("tls", "tls") == 1 })
	if got := whose(t, r.At("plain")); got != "up" {
		t.Error(got)
	}
}
