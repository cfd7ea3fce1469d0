package server_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/testutil/certificate"
	"github.com/penstock/penstock/internal/testutil/sockets"
)

// secure is a TLS server that sends its name, and then echoes.
func secure(t *testing.T, name string, hosts ...string) string {
	t.Helper()
	cert, key := certificate.New(t, hosts...)
	pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
	if err != nil {
		t.Fatal(err)
	}
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
		var protocols []string
		if c.protocol != "" {
			protocols = []string{c.protocol}
		}
		conn, err := hello(t, r.At("web"), c.name, protocols...)
		if err != nil {
			t.Fatalf("%+v: %v", c, err)
		}
		if got := line(t, conn); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
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
		if got := line(t, c); got != "plain" {
			t.Errorf("%s: %s", name, got)
		}
		if got := line(t, c); got != "GET /" {
			t.Errorf("%s: the endpoint got %q", name, got)
		}
	}
	if got := whose(t, r.At("default")); got != "plain" {
		t.Errorf("a client that sends nothing gets %s", got)
	}
	for _, name := range []string{"default", "route", "required"} {
		conn, err := hello(t, r.At(name), "a.test")
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := line(t, conn); got != "secure" {
			t.Errorf("%s: %s", name, got)
		}
	}
	for name, why := range map[string]string{"required": "hello", "alone": "hello", "nowhere": "no_route"} {
		c := client(t, r.At(name))
		fmt.Fprint(c, "GET /\n")
		if err := gone(t, c); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%s: %v, want a reset", name, err)
		}
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
	if err != nil {
		t.Fatal(err)
	}
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
	if got := whose(t, r.At("begin")); got != "ours" {
		t.Error(got)
	}
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

// frontOf is a TLS server with a certificate.
func frontOf(t *testing.T, cert, key string) string {
	t.Helper()
	pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
	if err != nil {
		t.Fatal(err)
	}
	return sockets.Server(t, func(c net.Conn) {
		s := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{pair}})
		fmt.Fprint(s, "ours\n")
		sockets.Echo(s)
	})
}

// TestChecksSpeakTLS: a server answers plain requests with an error page, as web servers do at a
// TLS port. The check uses TLS and the server name that clients' connections use, and the
// endpoint is healthy.
func TestChecksSpeakTLS(t *testing.T) {
	t.Parallel()

	cert, key := certificate.New(t, "front.test")
	pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
	if err != nil {
		t.Fatal(err)
	}
	named := make(chan string, 100)
	web := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case named <- r.TLS.ServerName:
		default:
		}
		fmt.Fprintln(w, "well")
	}))
	web.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	web.StartTLS()
	defer web.Close()
	r := start(t, fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [%q], tls: {ca: c.pem, sni: front.test}, health_check: {type: http, interval: 20ms, timeout: 2s, fast_interval: 10ms, fall: 1, http: {body: well}}}]`,
		web.Listener.Addr()), "c.pem", cert)
	if name := <-named; name != "front.test" {
		t.Errorf("a check asks for %q", name)
	}
	c := client(t, r.At("l"))
	fmt.Fprintf(c, "GET / HTTP/1.0\r\nHost: front.test\r\n\r\n")
	if got := line(t, c); got != "HTTP/1.0 200 OK\r" {
		t.Errorf("%q", got)
	}
	if got := <-named; got != "front.test" {
		t.Errorf("asked for %q", got)
	}
	if e := r.Status().Upstreams[0].Endpoints[0]; e.State != "up" {
		t.Errorf("the endpoint is %q", e.State)
	}
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
