package tlsterm_test

import (
	"crypto/tls"
	"net"
	"testing"

	"github.com/penstock/penstock/proxy/internal/tlsterm"
)

// BenchmarkHandshake does handshakes one after the other, the client's work included.
func BenchmarkHandshake(b *testing.B) {
	a := newAuthority(b, "test")
	for _, bench := range []struct {
		name   string
		pair   tlsterm.Pair
		resume bool
	}{
		{"ECDSA P-256", a.pair("a.test"), false},
		{"RSA 2048", a.pairOf(rsaKey(b), "a.test"), false},
		{"resumed", a.pair("a.test"), true},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			addr := serve(b, newServer(b, tlsterm.Config{Certificates: []tlsterm.Pair{bench.pair}}))
			cfg := &tls.Config{ServerName: "a.test", RootCAs: a.pool()}
			if bench.resume {
				cfg.ClientSessionCache = tls.NewLRUClientSessionCache(1)
			}
			for b.Loop() {
				raw, err := net.Dial("tcp", addr)
				must(b, err)
				conn := tls.Client(raw, cfg)
				_, err = conn.Write([]byte("x"))
				must(b, err)
				_, err = conn.Read(make([]byte, 1))
				must(b, err)
				must(b, conn.Close())
			}
		})
	}
}
