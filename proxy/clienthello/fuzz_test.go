package clienthello_test

import (
	"crypto/tls"
	"errors"
	"testing"

	"github.com/penstock/penstock/proxy/clienthello"
)

// FuzzHello checks the guarantees of Length and Parse, for any input.
func FuzzHello(f *testing.F) {
	b := says(f, &tls.Config{ServerName: "shop.example.com", NextProtos: []string{"h2"}})
	f.Add(b)
	f.Add(cut(b, 1))
	f.Add(cut(b, 3, 50, 100))
	f.Add(b[:20])
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		need, err := clienthello.Length(b)
		if err != nil {
			if !errors.Is(err, clienthello.ErrNotTLS) && !errors.Is(err, clienthello.ErrTooLong) && !errors.Is(err, clienthello.ErrMalformed) {
				t.Fatalf("an error of no kind: %v", err)
			}
			if _, err := clienthello.Parse(b); err == nil {
				t.Fatal("parsed all the same")
			}
			return
		}
		if need <= 0 || need > clienthello.Max {
			t.Fatalf("asks for %d bytes", need)
		}
		info, err := clienthello.Parse(b)
		if whole := need <= len(b); errors.Is(err, clienthello.ErrIncomplete) == whole {
			t.Fatalf("%d bytes of %d: %v", len(b), need, err)
		}
		name, saw := goServer(b)
		agrees(t, "crypto/tls", "fuzzed", b, saw, name)
		if err == nil {
			again, err := clienthello.Parse(b[:need])
			if err != nil || again.ServerName != info.ServerName {
				t.Fatalf("without what follows it: %+v, %v; with it: %+v", again, err, info)
			}
		}
		for n := range min(need-1, len(b)) {
			if less, err := clienthello.Length(b[:n]); err != nil || less > need && need <= len(b) {
				t.Fatalf("of the first %d bytes: %d, %v; of all %d", n, less, err, need)
			}
		}
	})
}
