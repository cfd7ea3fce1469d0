package server_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/certificate"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/admin"
)

// secure is a TLS server that sends its name, and then echoes.
func secure(t *testing.T, name string, hosts ...string) string {
	t.Helper()
	cert, key := certificate.New(t, hosts...)
	pair := pairOf(t, cert, key)
	cfg := &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2", "http/1.1"}}
	return sockets.Server(t, func(c net.Conn) {
		s := tls.Server(c, cfg)
		fmt.Fprintf(s, "%s\n", name)
		sockets.Echo(s)
	})
}

// hello connects a TLS client that asks for a name.
func hello(t *testing.T, address, name string, protocols ...string) (*tls.Conn, error) {
	t.Helper()
	c := tls.Client(client(t, address), &tls.Config{ServerName: name, NextProtos: protocols, InsecureSkipVerify: true})
	return c, c.Handshake()
}

// TestPassthrough: TLS is routed by the name and the protocols in the ClientHello. Its bytes are
// spliced or copied, and never decrypted here.
func TestPassthrough(t *testing.T) {
	t.Parallel()

	a, b, h2 := secure(t, "a", "a.test"), secure(t, "b", "*.b.test"), secure(t, "h2", "h2.test")
	r := start(t, fmt.Sprintf(`
listeners:
  - name: web
    bind: "127.0.0.1:0"
    routes:
      - {match: {alpn: [h2]}, upstream: h2}
      - {match: {sni: [a.test]}, upstream: a}
      - {match: {sni: ["*.b.test"]}, upstream: b}
upstreams: [{name: a, endpoints: [%q]}, {name: b, endpoints: [%q]}, {name: h2, endpoints: [%q]}]`, a, b, h2))
	for _, c := range []struct {
		name, protocol, want string
	}{{"a.test", "", "a"}, {"A.Test", "http/1.1", "a"}, {"x.b.test", "", "b"}, {"a.test", "h2", "h2"}} {
		conn, err := hello(t, r.At("web"), c.name, strings.Fields(c.protocol)...)
		if err != nil {
			t.Fatalf("%+v: %v", c, err)
		}
		hears(t, conn, c.want)
		echoes(t, conn, "through TLS")
	}
	if _, err := hello(t, r.At("web"), "nobody.test"); err == nil {
		t.Error("a name that no route has was served")
	}
	c := client(t, r.At("web"))
	fmt.Fprint(c, "GET / HTTP/1.1\r\n\r\n")
	gone(t, c)
	r.Until("both clients are counted", func() bool {
		return r.Refused("web", "no_route") == 2
	})
}

// TestNoHello: a client without a ClientHello goes to a route that requires none, or to the
// listener's upstream, unless TLS is required. Without either it is refused.
func TestNoHello(t *testing.T) {
	t.Parallel()

	r := start(t, fmt.Sprintf(`
listeners:
  - {name: default, bind: "127.0.0.1:0", upstream: plain, preread_silence: 500ms, routes: [{match: {sni: ["*"]}, upstream: secure}]}
  - {name: alpn, bind: "127.0.0.1:0", upstream: plain, routes: [{match: {alpn: [h2]}, upstream: secure}]}
  - {name: route, bind: "127.0.0.1:0", routes: [{match: {sni: ["*"]}, upstream: secure}, {match: {source: [127.0.0.0/8]}, upstream: plain}]}
  - {name: required, bind: "127.0.0.1:0", require_tls: true, upstream: plain, routes: [{match: {sni: ["*"]}, upstream: secure}]}
  - {name: alone, bind: "127.0.0.1:0", require_tls: true, upstream: plain}
  - {name: nowhere, bind: "127.0.0.1:0", routes: [{match: {sni: ["*"]}, upstream: secure}]}
upstreams: [{name: secure, endpoints: [%q]}, {name: plain, endpoints: [%q]}]`, secure(t, "secure", "a.test"), named(t, "plain")))
	for _, name := range []string{"default", "alpn", "route"} {
		c := client(t, r.At(name))
		fmt.Fprint(c, "GET /\n")
		hears(t, c, "plain")
		hears(t, c, "GET /")
	}
	servedBy(t, r.At("default"), "plain")
	for _, name := range []string{"default", "route", "required"} {
		conn, err := hello(t, r.At(name), "a.test")
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		hears(t, conn, "secure")
	}
	for name, why := range map[string]string{"required": "hello", "alone": "hello", "nowhere": "no_route"} {
		c := client(t, r.At(name))
		fmt.Fprint(c, "GET /\n")
		isReset(t, c)
		r.Until("the refusal is counted", func() bool { return r.Refused(name, why) == 1 })
	}
}

// TestTerminated: TLS ends here, and begins again if the upstream is configured so.
func TestTerminated(t *testing.T) {
	t.Parallel()

	plain, again := named(t, "plain"), secure(t, "again", "again.test")
	cert, key := certificate.New(t, "front.test")
	r := start(t, fmt.Sprintf(`
listeners:
  - {name: plain, bind: "127.0.0.1:0", tls: {certificates: [{cert: c.pem, key: k.pem}], alpn: [h2]}, upstream: plain}
  - {name: again, bind: "127.0.0.1:0", tls: {certificates: [{cert: c.pem, key: k.pem}]}, upstream: again}
  - {name: begin, bind: "127.0.0.1:0", upstream: ours}
upstreams:
  - {name: plain, endpoints: [%q]}
  - {name: again, endpoints: [%q], tls: {ca: c.pem, sni: again.test}, queue: {hold: 0s}, retry: {attempts: 0}}
  - {name: ours, endpoints: [%q], tls: {ca: c.pem, sni: front.test}}`, plain, again, frontOf(t, cert, key)), "c.pem", cert, "k.pem", key)
	c, err := hello(t, r.At("plain"), "front.test", "h2")
	must(t, err)
	if got := line(t, c); got != "plain" || c.ConnectionState().NegotiatedProtocol != "h2" {
		t.Error(got, c.ConnectionState().NegotiatedProtocol)
	}
	echoes(t, c, "terminated")
	c, err = hello(t, r.At("again"), "front.test")
	if err == nil {
		_, err = sockets.ReadLine(c)
	}
	if err == nil {
		t.Error("an endpoint with an unknown authority's certificate was accepted")
	}
	servedBy(t, r.At("begin"), "ours")
	st := r.Status()
	if st.TLSSessions.Active < 1 || st.TLSSessions.Most != 2500 {
		t.Errorf("TLS sessions %+v", st.TLSSessions)
	}
	for i, l := range st.Listeners {
		switch h := l.Handshakes; {
		case l.Name == "begin":
			if h != nil {
				t.Error("handshakes of a listener at which no TLS ends")
			}
		case h == nil || h.Completed != 1:
			t.Errorf("handshakes of %s: %+v", l.Name, h)
		}
		if h := st.Upstreams[i].Handshakes; h == nil != (st.Upstreams[i].Name == "plain") {
			t.Errorf("handshakes with %s: %+v", st.Upstreams[i].Name, h)
		}
	}
	if h := st.Upstreams[0]; h.Name != "again" || h.Handshakes.Failed["certificate"] != 1 || h.Reasons["failed"] != 1 {
		t.Errorf("handshakes with the rejected endpoint: %+v, refused by %v", h.Handshakes, h.Reasons)
	}
	r.Until("its bytes are counted as copied", func() bool {
		s := r.Summary()
		return s.Bytes.ClientToEndpoint.Copied >= int64(len("terminated")) && s.Fallbacks["wrapped"] > 0
	})
}

// TestEndpointsLackTheProtocol: a client that has chosen a protocol that no endpoint speaks is refused without waiting, after each
// endpoint was tried once. That is no failure of an endpoint, and others are served meanwhile. If another endpoint speaks the
// protocol, the client is served there.
func TestEndpointsLackTheProtocol(t *testing.T) {
	t.Parallel()

	cert, key := certificate.New(t, "front.test")
	pair := pairOf(t, cert, key)
	speaks := func(protocol string) string {
		return sockets.Server(t, func(c net.Conn) {
			s := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{protocol}})
			fmt.Fprintf(s, "%s\n", protocol)
			sockets.Echo(s)
		})
	}
	a, b, h2 := speaks("http/1.1"), speaks("http/1.1"), speaks("h2")
	r := start(t, fmt.Sprintf(`
listeners:
  - {name: l, bind: "127.0.0.1:0", tls: {certificates: [{cert: c.pem, key: k.pem}], alpn: [h2, http/1.1]}, upstream: u}
  - {name: mixed, bind: "127.0.0.1:0", tls: {certificates: [{cert: c.pem, key: k.pem}], alpn: [h2, http/1.1]}, upstream: mixed}
  - {name: within, bind: "127.0.0.1:0", routes: [{match: {sni: [a.example.com]}, upstream: u}]}
upstreams:
  - name: u
    endpoints: [%q, %q]
    tls: {ca: c.pem, sni: front.test}
    health_check: off
    queue: {hold: 1m}
    outlier_detection: {consecutive_failures: 2, base_ejection_time: 1h, max_ejection_time: 1h}
    circuit_breaker: {min_volume: 2, open: 1h}
  - {name: mixed, balance: first, endpoints: [%[1]q, %[3]q], tls: {ca: c.pem, sni: front.test}, health_check: off, retry: {attempts: 1, budget: 0}}`, a, b, h2), "c.pem", cert, "k.pem", key)
	const clients = 12
	for range clients {
		if c, err := hello(t, r.At("l"), "front.test", "h2"); err == nil {
			isReset(t, c)
		}
		c, err := hello(t, r.At("l"), "front.test", "http/1.1")
		must(t, err)
		hears(t, c, "http/1.1")
		c, err = hello(t, r.At("mixed"), "front.test", "h2")
		must(t, err)
		hears(t, c, "h2")
		within, err := net.Dial("tcp", r.At("within"))
		must(t, err)
		must(t, second(within.Write(asking(t)))) // its protocols are for the server behind the endpoint
		hears(t, within, "http/1.1")
		within.Close()
	}
	r.Until("the refused clients are counted", func() bool { return r.Refused("l", "tls") == clients })
	for _, u := range r.Status().Upstreams {
		for _, e := range u.Endpoints {
			if e.State != "up" || e.Failures != 0 || e.Ejections != 0 || e.LastFailure != nil {
				t.Errorf("an endpoint of %s: %+v", u.Name, e)
			}
		}
		if want := map[string]int64{"u": 2 * clients, "mixed": clients}[u.Name]; u.Handshakes.Failed["protocol"] != want || u.RetriesDenied != 0 || u.Held != 0 || u.LastResort != 0 {
			t.Errorf("failed handshakes of %s: %v, want %d; %d retries denied, %d clients held, %d last resorts", u.Name, u.Handshakes.Failed, want, u.RetriesDenied, u.Held, u.LastResort)
		}
	}
}

// TestEndpointsBanASource: endpoints learn the source of a client by a PROXY header, and may end the connections of one
// source before a handshake, or before anything that the client sends. This ejects no endpoint while other sources are served, and opens no breaker.
func TestEndpointsBanASource(t *testing.T) {
	t.Parallel()

	cert, key := certificate.New(t, "front.test")
	pair := pairOf(t, cert, key)
	reset := func(c *net.TCPConn) { _ = c.SetLinger(0) }
	closed := func(c *net.TCPConn) { _ = c.CloseWrite(); _, _ = io.Copy(io.Discard, c) }
	for name, test := range map[string]struct {
		tls string
		end func(c *net.TCPConn)
	}{
		"TLS, reset": {"\n    tls: {ca: c.pem, sni: front.test}", reset}, "TLS, closed": {"\n    tls: {ca: c.pem, sni: front.test}", closed},
		"reset": {"", reset}, "closed": {"", closed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			bans := func() string {
				return sockets.Server(t, func(c net.Conn) {
					r := bufio.NewReader(c)
					header, err := r.ReadString('\n')
					if err != nil || strings.HasPrefix(header, "PROXY TCP4 127.0.1.66 ") {
						test.end(c.(*net.TCPConn))
						return
					}
					if test.tls == "" {
						fmt.Fprint(c, "served\n")
						sockets.Echo(c)
						return
					}
					s := tls.Server(buffered{c, r}, &tls.Config{Certificates: []tls.Certificate{pair}})
					fmt.Fprint(s, "served\n")
					sockets.Echo(s)
				})
			}
			r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams:
  - name: u
    endpoints: [%q, %q]%s
    send_proxy: 1
    health_check: off
    outlier_detection: {consecutive_failures: 2, base_ejection_time: 1h, max_ejection_time: 1h, max_ejected: 1}
    circuit_breaker: {min_volume: 4, open: 1h}`, bans(), bans(), test.tls), "c.pem", cert)
			served := func(times int64) {
				for range 2 * times { // by each endpoint in turn
					c := from(t, 1, r.At("l"))
					hears(t, c, "served")
					c.Close()
				}
				r.Until("the clients have left", func() bool { return r.Status().Connections.Active == 0 })
			}
			served(2)
			for range 2 {
				served(1)
				for range 4 {
					c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, 66)}}).Dial("tcp", r.At("l"))
					if err != nil { // it was reset already
						continue
					}
					_ = c.SetDeadline(time.Now().Add(condition.Patience))
					if n, err := c.Read(make([]byte, 1)); n != 0 || errors.Is(err, os.ErrDeadlineExceeded) {
						t.Errorf("the banned client gets %d bytes, %v", n, err)
					}
					c.Close()
				}
			}
			for _, e := range r.Status().Upstreams[0].Endpoints {
				if e.State != "up" || e.Ejections != 0 || e.Failures == 0 {
					t.Errorf("%+v", e)
				}
			}
			served(1)
		})
	}
}

// TestEndpointEndsTLSWhileAway: with PROXY headers an endpoint that accepts connections and ends them, such as a forwarder before
// a server that restarts, may ban the client. But if it serves no other source, or fails many, clients are held until it is back.
func TestEndpointEndsTLSWhileAway(t *testing.T) {
	t.Parallel()

	cert, key := certificate.New(t, "front.test")
	pair := pairOf(t, cert, key)
	var away atomic.Bool
	endpoint := sockets.Server(t, func(c net.Conn) {
		r := bufio.NewReader(c)
		if _, err := r.ReadString('\n'); err != nil || away.Load() {
			return
		}
		s := tls.Server(buffered{c, r}, &tls.Config{Certificates: []tls.Certificate{pair}})
		fmt.Fprint(s, "served\n")
		sockets.Echo(s)
	})
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [%q], tls: {ca: c.pem, sni: front.test}, send_proxy: 1, health_check: off, queue: {hold: 1m}, circuit_breaker: off}]`, endpoint), "c.pem", cert)
	held := func() int64 { return r.Status().Upstreams[0].Held } // clients held so far; Pending also counts clients that are being connected
	away.Store(true)
	first := from(t, 1, r.At("l"))
	r.Until("the client is held", func() bool { return held() > 0 })
	away.Store(false)
	hears(t, first, "served")
	for i := range byte(8) {
		hears(t, from(t, i, r.At("l")), "served")
	}
	away.Store(true)
	for i := range byte(30) {
		refused, before := r.Count("refused"), held()
		c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, i)}}).Dial("tcp", r.At("l"))
		if err != nil { // it was refused already
			continue
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(condition.Patience))
		if r.Until("the client is held or refused", func() bool { return held() > before || r.Count("refused") > refused }); held() > before {
			away.Store(false)
			hears(t, c, "served")
			return
		}
	}
	t.Error("no client is held")
}

// buffered is a connection from which some bytes were read ahead.
type buffered struct {
	net.Conn
	r *bufio.Reader
}

// Read implements [net.Conn].
func (b buffered) Read(p []byte) (int, error) { return b.r.Read(p) }

// TestTrialsWithoutTheProtocol: while an endpoint is away, clients are held that want a protocol which it does not speak. When it is
// back, they do not use up the trials that find this out for the others.
func TestTrialsWithoutTheProtocol(t *testing.T) {
	t.Parallel()

	cert, key := certificate.New(t, "front.test")
	pair, port := pairOf(t, cert, key), sockets.Port(t)
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", tls: {certificates: [{cert: c.pem, key: k.pem}], alpn: [h2, http/1.1]}, upstream: u}]
upstreams: [{name: u, endpoints: ["127.0.0.1:%s"], tls: {ca: c.pem, sni: front.test}, health_check: off, queue: {hold: 20s}, outlier_detection: off, circuit_breaker: off}]`, port), "c.pem", cert, "k.pem", key)
	const clients = 60 // each would keep others from a trial for half a second
	held := func(protocol string, n int64) (c *tls.Conn) {
		c, err := hello(t, r.At("l"), "front.test", protocol)
		must(t, err)
		r.Until("the client is held", func() bool { return r.Status().Upstreams[0].Held == n })
		return c
	}
	for i := range clients {
		held("h2", int64(i+1))
	}
	c := held("http/1.1", clients+1)
	l, err := net.Listen("tcp", "127.0.0.1:"+port)
	must(t, err)
	sockets.Serve(t, l, func(c net.Conn) {
		s := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"http/1.1"}})
		fmt.Fprint(s, "served\n")
		sockets.Echo(s)
	})
	t.Cleanup(func() { c.Close() }) // before the endpoint ends
	hears(t, c, "served")
}

// frontOf is a TLS server with a certificate.
func frontOf(t *testing.T, cert, key string) string {
	t.Helper()
	pair := pairOf(t, cert, key)
	return sockets.Server(t, func(c net.Conn) {
		s := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{pair}})
		fmt.Fprint(s, "ours\n")
		sockets.Echo(s)
	})
}

// helloFrom is hello from another source, and succeeds.
func helloFrom(t *testing.T, source byte, address, name string) *tls.Conn {
	t.Helper()
	c := tls.Client(from(t, source, address), &tls.Config{ServerName: name, InsecureSkipVerify: true})
	if err := c.Handshake(); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return c
}

// shake connects a TLS client with a configuration. A client's error shows at the first line,
// since in TLS 1.3 its handshake ends before its certificate is verified.
func shake(t *testing.T, address string, cfg *tls.Config) (c *tls.Conn, says string, err error) {
	t.Helper()
	raw, err := net.DialTimeout("tcp", address, condition.Patience)
	if err != nil {
		return nil, "", err
	}
	t.Cleanup(func() { raw.Close() })
	_ = raw.SetDeadline(time.Now().Add(condition.Patience))
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
	pair := pairOf(t, cert, key)
	own := pairOf(t, mine, mineKey)
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

// TestChecksOfMutualTLS: a check presents the upstream's certificate too, and after a reload the next one.
func TestChecksOfMutualTLS(t *testing.T) {
	t.Parallel()

	cert, key := certificate.New(t, "front.test")
	mine, mineKey := certificate.New(t, "client.test")
	next, nextKey := certificate.New(t, "next.test")
	pair := pairOf(t, cert, key)
	strict := sockets.Server(t, func(c net.Conn) {
		s := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: trusting(mine + next)})
		if s.Handshake() == nil {
			fmt.Fprintf(s, "%s\n", s.ConnectionState().PeerCertificates[0].Subject.CommonName)
		}
	})
	text := func(own string) string {
		return fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams:
  - name: u
    endpoints: [%q]
    tls: {ca: c.pem, sni: front.test, cert: %[2]s.pem, key: %[2]s.key}
    health_check: {send: x, expect: next.test, interval: 100ms, rise: 1, fall: 1}`, strict, own)
	}
	r := start(t, text("mine"), "c.pem", cert, "mine.pem", mine, "mine.key", mineKey, "next.pem", next, "next.key", nextKey)
	checked := func(says string) func() bool {
		return func() bool { return strings.Contains(r.Status().Upstreams[0].Endpoints[0].Why, says) }
	}
	r.Until("the check gets the name of the first certificate", checked("not the expected answer: 12 bytes"))
	r.Reload(text("next"))
	r.Until("the check gets the name of the next certificate", func() bool { return r.Endpoint("u", strict).State == "up" })
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
			if strings.Contains(text, "ca.pem contains no certificate") {
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
	r.Logs("level=ERROR", "new certificates cannot be used", "ca.pem")
	r.Write("ca.pem", cert)
	r.Until("neither has it", func() bool { return refused() == 0 })
	late, lateKey := certificate.Until(t, time.Now().Add(-time.Minute), "front.test")
	r.Write("c.pem", late)
	r.Write("c.key", lateKey)
	r.Logs("level=WARN", "the new certificate has expired", "c.pem")
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
	must(t, err)
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
		must(t, err)
		line(t, c)
	}
	if _, _, err := shake(t, r.At("tls"), &tls.Config{InsecureSkipVerify: true}); err == nil || errors.Is(err, errTimeout) {
		t.Errorf("%v, want the client refused", err)
	}
	r.Until("the refusal is counted", func() bool { return r.Refused("tls", "tls") == 1 })
	servedBy(t, r.At("plain"), "up")
}

// TestTLSSessionsRunOnLoops: a joined session whose TLS ends or begins here has a loop, is counted as copied and
// wrapped, and takes no goroutine.
func TestTLSSessionsRunOnLoops(t *testing.T) {
	g := newTLSRig(t)
	for _, listener := range []string{"ended", "begun"} {
		_, _, _ = g.session(listener) // whatever is made once
		before := runtime.NumGoroutine()
		const many = 20
		var held []net.Conn
		for range many {
			spoken, beneath, plain := g.session(listener)
			held = append(held, spoken, beneath, plain)
		}
		g.Until(fmt.Sprintf("%s: no goroutine for each session", listener), func() bool {
			return runtime.NumGoroutine() < before+2*many // those of the test's own server are one for each
		})
		for _, s := range g.list(admin.SessionQuery{}, admin.SessionOrder{}) {
			if s.Loop < 0 {
				t.Errorf("%s: %+v", listener, s)
			}
		}
		for _, c := range held {
			_ = c.Close()
		}
	}
}

// A tlsRig has TLS ended here at the listener ended, and begun here at the listener begun, and
// returns the endpoints' ends of sessions.
type tlsRig struct {
	*rig
	t         *testing.T
	cert, key string
	far       chan net.Conn
}

func newTLSRig(t *testing.T) *tlsRig {
	g := &tlsRig{t: t, far: make(chan net.Conn)}
	g.cert, g.key = certificate.New(t, "front.test")
	over := make(chan struct{})
	up := sockets.Server(t, func(c net.Conn) {
		select {
		case g.far <- c:
			<-over
		case <-over:
		}
	})
	t.Cleanup(func() { close(over) })
	g.rig = start(t, fmt.Sprintf(`
session_log: {to: sessions.log}
listeners:
  - {name: ended, bind: "127.0.0.1:0", tls: {certificates: [{cert: c.pem, key: c.key}]}, upstream: plain}
  - {name: begun, bind: "127.0.0.1:0", upstream: tls}
upstreams:
  - {name: plain, endpoints: [%q], health_check: off, outlier_detection: off}
  - {name: tls, endpoints: [%q], tls: {ca: c.pem, sni: front.test}, health_check: off, outlier_detection: off}`, up, up), "c.pem", g.cert, "c.key", g.key)
	return g
}

// session returns the two ends of a joined session: the TLS end with its TCP connection, and the
// other end.
func (g *tlsRig) session(listener string) (spoken *tls.Conn, beneath, plain *net.TCPConn) {
	g.t.Helper()
	c := client(g.t, g.At(listener))
	if listener == "ended" {
		spoken, beneath = tls.Client(c, &tls.Config{ServerName: "front.test", RootCAs: trusting(g.cert)}), c
		must(g.t, spoken.Handshake())
		plain = (<-g.far).(*net.TCPConn)
	} else {
		beneath, plain = (<-g.far).(*net.TCPConn), c
		spoken = tls.Server(beneath, &tls.Config{Certificates: []tls.Certificate{pairOf(g.t, g.cert, g.key)}})
		must(g.t, spoken.Handshake())
	}
	for _, c := range []net.Conn{beneath, plain} {
		_ = c.SetDeadline(time.Now().Add(condition.Patience))
	}
	for _, way := range [][2]net.Conn{{spoken, plain}, {plain, spoken}} {
		sends(g.t, way[0], "x")
		receives(g.t, way[1], "x")
	}
	return spoken, beneath, plain
}

// TestResetWithTLSIsNoEnd: when either side is reset, so is the other one, without an end of file
// before. With TLS it has not received close_notify either.
func TestResetWithTLSIsNoEnd(t *testing.T) {
	t.Parallel()

	g := newTLSRig(t)
	for _, listener := range []string{"ended", "begun"} {
		for _, of := range []sockets.Survivor{{Reads: true}, {Reads: true, Writes: true}} {
			for i := range 40 {
				spoken, beneath, plain := g.session(listener)
				var survives net.Conn = plain
				resets, writes := beneath, net.Conn(spoken)
				if i%2 == 1 {
					survives, resets, writes = spoken, plain, plain
				}
				s, ended := of, make(chan struct{})
				go func() { defer close(ended); s.Live(survives, make([]byte, 4096)) }()
				for range i {
					must(t, second(writes.Write(make([]byte, 1000))))
				}
				_, _ = resets.SetLinger(0), resets.Close()
				<-ended
				if !s.WasReset() {
					t.Errorf("%s, the side with TLS survives: %v; %v", listener, i%2 == 1, &s)
				}
				_ = survives.Close()
			}
		}
	}
}

// TestEndWithoutCloseNotify: a side with TLS that ends its connection without close_notify, after the other side has ended, ends
// the session in order, as nginx does. Before that its end is a reset, and the line says why.
func TestEndWithoutCloseNotify(t *testing.T) {
	t.Parallel()

	g := newTLSRig(t)
	for _, listener := range []string{"ended", "begun"} {
		spoken, beneath, plain := g.session(listener)
		sends(t, spoken, "the rest")
		must(t, plain.CloseWrite())
		if _, err := spoken.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("%s: the side with TLS reads %v", listener, err)
		}
		must(t, beneath.CloseWrite())
		if got, err := io.ReadAll(plain); string(got) != "the rest" || err != nil {
			t.Errorf("%s: the other side reads %q, %v", listener, got, err)
		}
		_, beneath, plain = g.session(listener)
		must(t, beneath.CloseWrite())
		isReset(t, plain)
	}
	ends := make(map[string]int)
	for line := range bytes.Lines(g.logged(t, 4)) {
		var got struct{ Listener, Reason, State, Culprit, Error string }
		must(t, json.Unmarshal(line, &got))
		ends[strings.Join([]string{got.Listener, got.Reason, got.State, got.Culprit, got.Error}, "|")]++
	}
	want := map[string]int{
		"ended|eof|--||": 1, "ended|reset|CD|client|read tcp: the TLS stream ended without close_notify": 1,
		"begun|eof|--||": 1, "begun|reset|SD|endpoint|read tcp: the TLS stream ended without close_notify": 1,
	}
	if !maps.Equal(ends, want) {
		t.Errorf("the sessions ended as %v, want %v", ends, want)
	}
}

// TestHandshakesEnd: a silent TLS client ends by the preread timeout, a silent TLS endpoint by
// the connect timeout. The handshake's own timeout does not apply.
func TestHandshakesEnd(t *testing.T) {
	t.Parallel()

	mute := sockets.Server(t, func(c net.Conn) { _, _ = c.Read(make([]byte, 1<<20)); _, _ = c.Read(make([]byte, 1)) })
	cert, key := certificate.New(t, "front.test")
	r := start(t, fmt.Sprintf(`
listeners:
  - {name: accept, bind: "127.0.0.1:0", tls: {certificates: [{cert: c.pem, key: k.pem}]}, upstream: plain, timeouts: {preread: 300ms}}
  - {name: begin, bind: "127.0.0.1:0", upstream: mute, timeouts: {connect: 300ms}}
upstreams:
  - {name: plain, endpoints: [%q]}
  - {name: mute, endpoints: [%q], tls: {ca: c.pem, sni: front.test}, retry: {attempts: 0}, queue: {hold: 0s}, health_check: off}`, mute, mute), "c.pem", cert, "k.pem", key)
	began := time.Now()
	for _, name := range []string{"accept", "begin"} {
		c := client(t, r.At(name))
		if err := gone(t, c); errors.Is(err, errTimeout) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if took := time.Since(began); took > 6*time.Second { // a handshake's own timeout of 10 s is longer
		t.Errorf("it took %v", took)
	}
	for _, l := range r.Status().Listeners {
		if h := l.Handshakes; l.Name == "accept" && h.Failed["timeout"] != 1 {
			t.Errorf("handshakes: %+v", h)
		}
	}
	if u := r.Status().Upstreams[0]; u.Name != "mute" || u.Handshakes.Failed["timeout"] != 1 {
		t.Errorf("handshakes with %s: %+v", u.Name, u.Handshakes)
	}
}
