package server_test

import (
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/certificate"
	"github.com/penstock/penstock/internal/testutil/sockets"
)

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
