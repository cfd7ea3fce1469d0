package server_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/proxy/internal/proxyproto"
)

// greeted returns a server that reads a line or n bytes, and answers with its name.
func greeted(t *testing.T, name string) string {
	return sockets.Server(t, func(c net.Conn) {
		b := make([]byte, 1)
		if _, err := io.ReadFull(c, b); err == nil {
			fmt.Fprintf(c, "%s %q\n", name, b)
			sockets.Echo(c)
		}
	})
}

const manyRoutes = `
listeners:
  - name: many
    bind: "127.0.0.1:0"
    preread_silence: %s
    timeouts: {preread: %s}
    routes:
      - {match: {protocol: [ssh]}, upstream: ssh}
      - {match: {bytes: [{offset: 1, text: RFB}]}, upstream: rfb}
      - {match: {path: ["/admin/*", /admin]}, upstream: deny}
      - {match: {host: ["*.deny.test"]}, upstream: deny}
      - {match: {host: [a.test]}, upstream: a}
      - {match: {protocol: [http1]}, upstream: web}
      - {match: {user: [app]}, upstream: app}
      - {match: {protocol: [postgres]}, upstream: pg}
      - {match: {protocol: [redis]}, upstream: redis}
      - {match: {protocol: [silence]}, upstream: smtp}
    upstream: rest
upstreams:
`

// startMany has a load balancer serve manyRoutes, with two times of its listener.
func startMany(t *testing.T, silence, preread string) *rig {
	text := fmt.Sprintf(manyRoutes, silence, preread)
	for _, name := range []string{"ssh", "deny", "a", "web", "app", "pg", "redis", "rfb", "rest"} {
		text += fmt.Sprintf("  - {name: %s, endpoints: [%q]}\n", name, greeted(t, name))
	}
	return start(t, text+fmt.Sprintf("  - {name: smtp, endpoints: [%q]}\n", named(t, "smtp")))
}

// firstBytes are what clients send first, by the upstream that they get to; "" are refused.
var firstBytes = []struct{ sent, to string }{
	{"SSH-2.0-x\r\n", "ssh"},
	{"GET /admin/x HTTP/1.1\r\nHost: a.test\r\n\r\n", "deny"},
	{"GET /%61dmin HTTP/1.1\r\nHost: a.test\r\n\r\n", "deny"},
	{"GET / HTTP/1.1\r\nHost: A.TEST.:80\r\n\r\n", "a"},
	{"GET / HTTP/1.1\r\nX: y\r\nHost: X.Deny.Test\r\n\r\n", "deny"},
	{"GET http://x.deny.test/ HTTP/1.1\r\nHost: x.deny.test\r\n\r\n", "deny"},
	{"GET / HTTP/1.1\r\nHost: b.test\r\n\r\nGET /admin/x HTTP/1.1\r\nHost: x.deny.test\r\n\r\n", "web"},
	{"\x00\x00\x00\x12\x00\x03\x00\x00user\x00app\x00\x00", "app"},
	{"\x00\x00\x00\x12\x00\x03\x00\x00user\x00apq\x00\x00", "pg"},
	{"*1\r\n$4\r\nPING\r\n", "redis"},
	{"\x01RFB", "rfb"},
	{"EHLO x\r\n", "rest"},
	{"GET / HTTP/1.1\r\nHost: a.test\r\nHost: x.deny.test\r\n\r\n", ""},
	{"GET /x/../admin/ HTTP/1.1\r\nHost: a.test\r\n\r\n", ""},
	{"GET /x%2f..%2fadmin/ HTTP/1.1\r\nHost: a.test\r\n\r\n", ""},
	{"G1 /admin/x HTTP/1.1\r\n", "deny"},
	{strings.Repeat("A", 40) + " /admin/x HTTP/1.1\r\n", "deny"},
	{"\x0bGET /admin/x HTTP/1.1\r\n", ""},
	{"GET\x0c/admin/x HTTP/1.1\r\n", ""},
	{"\x02RFC", ""},
	{"GET /\r\n", ""},
	{"\r\nGET /admin/x HTTP/1.1\r\n\r\n", ""},
	{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", ""},
	{"GET / HTTP/1.1\r\nX: " + strings.Repeat("x", 8200) + "\r\nHost: x.deny.test\r\n\r\n", ""},
	{"\x00\x00\x27\x15\x00\x03\x00\x00user\x00app\x00", ""}, // a StartupMessage longer than servers take
	{"\x00\x00\x00\x08\x04\xd2\x16\x2f", "E"},               // SSLRequest: an ErrorResponse in place of the reset alone
}

// TestFirstBytes: a client gets to the first route that its first bytes fit, however they are split. If they leave a route
// in doubt that comes before, it is refused, and counted.
func TestFirstBytes(t *testing.T) {
	t.Parallel()

	r := startMany(t, "19s", "20s") // none of these clients waits for either
	refused := int64(0)
	for _, c := range firstBytes {
		for _, piece := range []int{len(c.sent), 1} {
			conn := client(t, r.At("many"))
			var err error
			for at := 0; at < len(c.sent) && err == nil; at += piece {
				_, err = io.WriteString(conn, c.sent[at:min(at+piece, len(c.sent))])
			}
			if c.to == "" || c.to == "E" {
				if err == nil {
					var b []byte
					b, err = io.ReadAll(conn)
					if len(b) > 0 != (c.to == "E") || string(b[:min(len(b), 1)]) != c.to {
						t.Errorf("%.40q in pieces of %d is answered %q", c.sent, piece, b)
					}
				}
				if c.to == "E" && err == nil {
					refused++
					continue // a connection that was read to its end is closed without a reset
				}
				if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
					t.Errorf("%.40q in pieces of %d: %v, want a reset", c.sent, piece, err)
				}
				refused++
				continue
			}
			if got, want := line(t, conn), fmt.Sprintf("%s %q", c.to, c.sent[:1]); got != want {
				t.Errorf("%.40q in pieces of %d gets to %s, want %s", c.sent, piece, got, want)
			}
			conn.Close()
		}
	}
	r.Until("the refusals are counted", func() bool { return r.Refused("many", "first_bytes") == refused })
	spoken := r.Listener("many").Protocols
	if spoken["ssh"] != 2 || spoken["http1"] != 16 || spoken["postgres"] != 4 || spoken["redis"] != 2 || spoken["other"] != 4 || len(spoken) != 5 {
		t.Errorf("clients by protocol: %v", spoken)
	}
}

// TestSilence: a client that says nothing gets to the route for that. One that is late with the rest of what it says is
// refused.
func TestSilence(t *testing.T) {
	t.Parallel()

	r := startMany(t, "100ms", "1s")
	if got := whose(t, r.At("many")); got != "smtp" {
		t.Errorf("a silent client gets to %s", got)
	}
	c := client(t, r.At("many"))
	fmt.Fprint(c, "GET /admin")
	gone(t, c)
	r.Until("the refusal is counted", func() bool { return r.Refused("many", "preread") == 1 })
}

// TestRouteByTLV: a TLV of the client's PROXY header decides the route, whatever the client says.
func TestRouteByTLV(t *testing.T) {
	t.Parallel()

	r := start(t, fmt.Sprintf(`
listeners:
  - {name: tlv, bind: "127.0.0.1:0", accept_proxy: {}, upstream: rest, routes: [{match: {tlv: [{type: 0xE0, text: vpc-1}]}, upstream: vpc}]}
upstreams: [{name: vpc, endpoints: [%q]}, {name: rest, endpoints: [%q]}]`, greeted(t, "vpc"), greeted(t, "rest")))
	at := netip.MustParseAddrPort("192.0.2.1:4711")
	for tlvs, want := range map[string]string{"\xe0\x00\x05vpc-1": "vpc", "\xe0\x00\x05vpc-2": "rest", "": "rest"} {
		c := client(t, r.At("tlv"))
		header := proxyproto.Append(nil, 2, &proxyproto.Connection{Source: at, Destination: at, TLVs: []byte(tlvs)})
		if _, err := c.Write(append(header, 'x')); err != nil {
			t.Fatal(err)
		}
		if got := line(t, c); got != want+` "x"` {
			t.Errorf("%q gets to %s, want %s", tlvs, got, want)
		}
	}
}
