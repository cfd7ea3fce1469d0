package server_test

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/penstock/penstock/internal/testutil/certificate"
	"github.com/penstock/penstock/internal/testutil/sockets"
)

// TestOnDataOfTLS: where TLS ends here, connect: on_data waits for the first decrypted byte. A client that is silent after
// its handshake is none of the endpoint's, which would fail by first_byte for it.
func TestOnDataOfTLS(t *testing.T) {
	t.Parallel()
	var reached atomic.Int64
	endpoint := sockets.Server(t, func(c net.Conn) {
		reached.Add(1)
		sockets.Echo(c)
	})
	cert, key := certificate.New(t, "front.test")
	r := start(t, fmt.Sprintf(`
listeners:
  - {name: l, bind: "127.0.0.1:0", upstream: u, connect: on_data, tls: {certificates: [{cert: c.pem, key: k.pem}]}, timeouts: {preread: 30s, first_byte: 20s}}
  - {name: hasty, bind: "127.0.0.1:0", upstream: u, connect: on_data, tls: {certificates: [{cert: c.pem, key: k.pem}]}, timeouts: {preread: 500ms, first_byte: 10ms}}
upstreams: [{name: u, endpoints: [{name: e, address: %q}], health_check: off}]`, endpoint), "c.pem", cert, "k.pem", key)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		cfg := &tls.Config{RootCAs: trusting(cert), ServerName: "front.test", MaxVersion: version}
		before, refused := reached.Load(), r.Refused("hasty", "tls")+r.Refused("hasty", "preread")
		c := tls.Client(client(t, r.At("hasty")), cfg)
		if err := c.Handshake(); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Error("a silent client gets a byte")
		}
		r.Until("a silent client refused", func() bool { return r.Refused("hasty", "tls")+r.Refused("hasty", "preread") == refused+1 })
		if n, e := reached.Load(), r.Endpoint("u", "e"); n != before || e.Failures != 0 {
			t.Errorf("the endpoint has got %d connections of a silent client, and has %d failures", n-before, e.Failures)
		}
		for _, size := range []int{1, 4096, 4097, 100_000} { // less than is awaited, as much, and more than a record
			c := tls.Client(client(t, r.At("l")), cfg)
			if err := c.Handshake(); err != nil {
				t.Fatal(err)
			}
			sent, back := []byte(strings.Repeat("x", size-1)+"\n"), make([]byte, size)
			if _, err := c.Write(sent); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(c, back); err != nil || !bytes.Equal(sent, back) {
				t.Fatalf("%d bytes: got other ones, or %v", size, err)
			}
			c.Close()
		}
	}
}
