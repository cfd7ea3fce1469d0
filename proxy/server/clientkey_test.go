package server_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"testing"

	"github.com/penstock/penstock/internal/testutil/certificate"
)

// proxyHeader is a PROXY header of version 2 from a source, with a TLV.
func proxyHeader(source byte, kind byte, value string) string {
	body := []byte{192, 0, 2, source, 192, 0, 2, 200, 0, 1, 0, 2, kind}
	body = append(binary.BigEndian.AppendUint16(body, uint16(len(value))), value...)
	return string(append(binary.BigEndian.AppendUint16([]byte("\r\n\r\n\x00\r\nQUIT\n\x21\x11"), uint16(len(body))), body...))
}

// TestBalanceOn: maglev hashes the property that balance_on names: clients of one name, or with one TLV, get one
// endpoint wherever they come from, and two nodes agree. A client without it is hashed by its source, and counted.
func TestBalanceOn(t *testing.T) {
	t.Parallel()
	cert, key := certificate.New(t, "front.test")
	secured := func(name string) string { return secure(t, name, "any.test") }
	plain := func(name string) string { return named(t, name) }
	text := func(of func(string) string, listener, on string) string {
		endpoints := ""
		for i := range 8 {
			endpoints += fmt.Sprintf("{name: e%d, address: %q}, ", i, of(fmt.Sprintf("e%d", i)))
		}
		return fmt.Sprintf(`
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u, timeouts: {preread: 200ms}%s}]
upstreams: [{name: u, balance: maglev, balance_on: %q, health_check: off, endpoints: [%s]}]`, listener, on, endpoints)
	}
	unkeyed := func(r *rig) int64 { return r.Status().Upstreams[0].Unkeyed }
	for name, c := range map[string]struct {
		of       func(string) string
		text, on string
		get      func(r *rig, source byte, value string) string
	}{
		"sni": {secured, "", "sni", func(r *rig, source byte, value string) string {
			return line(t, helloFrom(t, source, r.At("l"), value))
		}},
		"sni, TLS ends here": {plain, ", tls: {certificates: [{cert: c.pem, key: k.pem}]}", "sni", func(r *rig, source byte, value string) string {
			return line(t, helloFrom(t, source, r.At("l"), value))
		}},
		"tlv": {plain, ", accept_proxy: {versions: [2]}", "tlv:0xe0", func(r *rig, source byte, value string) string {
			conn := from(t, source, r.At("l"))
			_, _ = io.WriteString(conn, proxyHeader(source, 0xe0, value))
			return line(t, conn)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			config := text(c.of, c.text, c.on)
			a, b := start(t, config, "c.pem", cert, "k.pem", key), start(t, config, "c.pem", cert, "k.pem", key)
			owners := make(map[string]bool)
			for i := range 12 {
				value := fmt.Sprintf("T%d.test", i)
				want := c.get(a, 1, value)
				owners[want] = true
				for source := byte(2); source < 5; source++ {
					if got := c.get(a, source, value); got != want {
						t.Fatalf("%s from 127.0.1.%d gets %s, from 127.0.1.1 %s", value, source, got, want)
					}
				}
				if got := c.get(b, 9, value); got != want {
					t.Fatalf("%s gets %s on another node, %s on this one", value, got, want)
				}
			}
			if len(owners) < 3 {
				t.Errorf("12 values have %d owners of 8", len(owners))
			}
			if n := unkeyed(a); n != 0 {
				t.Errorf("%d sessions are counted as without the property", n)
			}
		})
	}
	t.Run("without it", func(t *testing.T) {
		bySNI, bySource := start(t, text(plain, "", "sni")), start(t, text(plain, "", "source"))
		if a, b := bySource.Status().Upstreams[0], bySNI.Status().Upstreams[0]; a.BalanceOn != "" || b.BalanceOn != "sni" {
			t.Errorf("the status has balance_on %q, want none, and %q, want sni", a.BalanceOn, b.BalanceOn)
		}
		for source := range byte(6) {
			want := line(t, from(t, source+1, bySource.At("l")))
			conn := from(t, source+1, bySNI.At("l"))
			_, _ = io.WriteString(conn, "GET /\n")
			if got := line(t, conn); got != want {
				t.Errorf("a client without a name gets %s, by its source it is %s", got, want)
			}
		}
		if n := unkeyed(bySNI); n != 6 {
			t.Errorf("%d sessions are counted as without a name, want 6", n)
		}
		if n := unkeyed(bySource); n != 0 {
			t.Errorf("%d sessions are counted as without a source", n)
		}
	})
}

// TestMetricsBy: sessions and bytes are counted by the listed names, and all others together: a client that invents
// names makes no series. A reload that adds a name lets the counts of the others go on.
func TestMetricsBy(t *testing.T) {
	t.Parallel()

	text := `
listeners: [{name: l, bind: "127.0.0.1:0", upstream: u, timeouts: {preread: 200ms}, metrics_by: {key: sni, values: [%s]}}]
upstreams: [{name: u, health_check: off, endpoints: [%q]}]`
	server := secure(t, "s", "any.test")
	r := start(t, fmt.Sprintf(text, "A.test, b.test", server))
	visit := func(name string) {
		c := helloFrom(t, 1, r.At("l"), name)
		line(t, c)
		c.Close()
	}
	counts := func() map[string]int64 {
		list := make(map[string]int64)
		for _, k := range r.sampled().Listeners[0].Keyed {
			list[k.Value] = k.Sessions
			moved := k.Bytes.ClientToEndpoint.Spliced + k.Bytes.ClientToEndpoint.Copied
			if k.Sessions > 0 != (moved > 0) {
				t.Errorf("%s: %d sessions and %d bytes", k.Value, k.Sessions, moved)
			}
		}
		return list
	}
	visit("a.test")
	visit("A.TEST")
	for i := range 20 {
		visit(fmt.Sprintf("invented%d.test", i))
	}
	running := helloFrom(t, 1, r.At("l"), "b.test")
	line(t, running)
	conn := from(t, 1, r.At("l"))
	_, _ = io.WriteString(conn, "GET /\n") // the endpoint answers with an alert
	_, _ = conn.Read(make([]byte, 1))
	if got, want := fmt.Sprint(counts()), "map[a.test:2 b.test:1 other:20 unknown:1]"; got != want {
		t.Errorf("counts are %s, want %s", got, want)
	}
	r.Reload(fmt.Sprintf(text, "c.test, a.test", server))
	visit("a.test")
	visit("c.test")
	if got, want := fmt.Sprint(counts()), "map[a.test:3 c.test:1 other:20 unknown:1]"; got != want {
		t.Errorf("after a reload counts are %s, want %s", got, want)
	}
}
