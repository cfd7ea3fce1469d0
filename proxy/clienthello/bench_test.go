package clienthello_test

import (
	"crypto/tls"
	"testing"

	"github.com/penstock/penstock/proxy/clienthello"
)

// BenchmarkHello compares the costs of hellos that arrive in different ways. "asked" reads
// again when there are as many bytes as Length has returned, as a proxy that sets SO_RCVLOWAT;
// "each byte" reads again for each byte.
func BenchmarkHello(b *testing.B) {
	whole := says(b, &tls.Config{ServerName: "shop.example.com", NextProtos: []string{"h2", "http/1.1"}})
	many := cut(whole, 100)
	for _, bench := range []struct {
		name  string
		bytes []byte
		each  bool
	}{
		{"at once", whole, false},
		{"each byte", whole, true},
		{"16 records, asked", many, false},
		{"16 records, each byte", many, true},
		{"60 KB in records of 100, asked", cut(says(b, &tls.Config{ServerName: "shop.example.com", NextProtos: large(60_000)}), 100), false},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				drip(b, bench.bytes, bench.each)
			}
		})
	}
	b.Run("HTTP", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := clienthello.Length([]byte("GET / HTTP/1.1\r\n")); err == nil {
				b.Fatal("taken for TLS")
			}
		}
	})
}

// BenchmarkParse parses a hello that has come in one piece.
func BenchmarkParse(b *testing.B) {
	whole := says(b, &tls.Config{ServerName: "bench.example"})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := clienthello.Parse(whole); err != nil {
			b.Fatal(err)
		}
	}
}

func drip(b *testing.B, whole []byte, each bool) {
	for at := 1; ; {
		need, err := clienthello.Length(whole[:at])
		if err != nil {
			b.Fatal(err)
		}
		if need <= at {
			break
		}
		if each {
			at++
		} else {
			at = need
		}
	}
	if _, err := clienthello.Parse(whole); err != nil {
		b.Fatal(err)
	}
}
