package clienthello_test

import (
	"context"
	"crypto/tls"
	"math/rand/v2"
	"net"
	"slices"
	"testing"

	"golang.org/x/crypto/cryptobyte"
	"pgregory.net/rapid"

	"github.com/penstock/penstock/internal/testutil/certificate"
	"github.com/penstock/penstock/proxy/clienthello"
)

// agree compares the result for a hello without crypto/tls with that of crypto/tls, and
// reports whether there was one.
func agree(t interface{ Fatalf(string, ...any) }, b []byte) (read bool) {
	if need, err := clienthello.Length(b); err != nil || need != len(b) {
		return false
	}
	info, ok := clienthello.Plain(b)
	if !ok {
		return false
	}
	want, err := clienthello.Full(b)
	if err != nil {
		t.Fatalf("read as %+v what crypto/tls refuses: %v\n%x", info, err, b)
	}
	if info.ServerName != want.ServerName || !slices.Equal(info.ALPN, want.ALPN) || info.Full || !want.Full {
		t.Fatalf("read as %+v, by crypto/tls as %+v\n%x", info, want, b)
	}
	return true
}

// TestPlain builds hellos of every extension that crypto/tls knows and of others, valid ones
// and slightly invalid ones.
func TestPlain(t *testing.T) {
	var read, left int
	rapid.Check(t, func(t *rapid.T) {
		if agree(t, built(t)) {
			read++
		} else {
			left++
		}
	})
	if read == 0 || left == 0 {
		t.Errorf("%d hellos were read, and %d left to crypto/tls", read, left)
	}
}

// built is a hello in one record.
func built(t *rapid.T) []byte {
	kinds := rapid.SliceOfN(rapid.SampledFrom([]uint16{
		0, 0, 0, 5, 10, 11, 13, 16, 16, 18, 23, 35, 41, 42, 43, 44, 45, 50, 51, 57, 0xfe0d, 0xff01, 0x0a0a, 21, 27, 0x4469,
	}), 0, 7).Draw(t, "kinds")
	var message cryptobyte.Builder
	message.AddUint16(0x0303)
	message.AddBytes(make([]byte, 32))
	message.AddUint8LengthPrefixed(bytesOf(t, "session", 0, 3))
	message.AddUint16LengthPrefixed(bytesOf(t, "suites", 1, 6))
	message.AddUint8LengthPrefixed(bytesOf(t, "compression", 0, 2))
	message.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) {
		for _, kind := range kinds {
			b.AddUint16(kind)
			b.AddUint16LengthPrefixed(body(t, kind))
		}
	})
	content := message.BytesOrPanic()
	var b cryptobyte.Builder
	b.AddBytes([]byte{22, 3, 1})
	b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) {
		b.AddUint8(1)
		b.AddUint24LengthPrefixed(func(b *cryptobyte.Builder) { b.AddBytes(content) })
	})
	return b.BytesOrPanic()
}

// body returns that of an extension, sometimes with a byte too many, too few, or another one.
func body(t *rapid.T, kind uint16) cryptobyte.BuilderContinuation {
	var b cryptobyte.Builder
	wellFormed(t, kind, &b)
	content := b.BytesOrPanic()
	switch at := rapid.IntRange(0, 12).Draw(t, "harm"); {
	case at == 0:
		content = append(content, 0)
	case at == 1 && len(content) > 0:
		content = content[:len(content)-1]
	case at == 2 && len(content) > 0:
		content[rapid.IntRange(0, len(content)-1).Draw(t, "at")] = rapid.Byte().Draw(t, "byte")
	case at == 3:
		content = nil
	}
	return func(b *cryptobyte.Builder) { b.AddBytes(content) }
}

func wellFormed(t *rapid.T, kind uint16, b *cryptobyte.Builder) {
	switch kind {
	case 0:
		b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) {
			for range rapid.IntRange(0, 2).Draw(t, "names") {
				b.AddUint8(rapid.SampledFrom([]uint8{0, 0, 0, 1}).Draw(t, "type"))
				b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) {
					b.AddBytes([]byte(rapid.SampledFrom([]string{"a.b", "A.b", "a.b.", "ä.b", "\xff", "", "x"}).Draw(t, "name")))
				})
			}
		})
	case 16:
		b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) {
			for range rapid.IntRange(0, 10).Draw(t, "protocols") {
				b.AddUint8LengthPrefixed(bytesOf(t, "protocol", 0, 3))
			}
		})
	case 10, 13, 50:
		b.AddUint16LengthPrefixed(bytesOf(t, "list", 0, 4))
	case 11, 43, 45, 0xff01:
		b.AddUint8LengthPrefixed(bytesOf(t, "list", 0, 4))
	case 5:
		b.AddUint8(1)
		b.AddUint16LengthPrefixed(bytesOf(t, "ids", 0, 2))
		b.AddUint16LengthPrefixed(bytesOf(t, "more", 0, 2))
	case 51:
		b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) {
			for range rapid.IntRange(0, 2).Draw(t, "shares") {
				b.AddUint16(29)
				b.AddUint16LengthPrefixed(bytesOf(t, "key", 0, 3))
			}
		})
	case 41:
		preSharedKey(t, b)
	case 35, 57, 0xfe0d, 0x0a0a, 21, 27, 0x4469:
		bytesOf(t, "anything", 0, 3)(b)
	case 44:
		b.AddUint16LengthPrefixed(bytesOf(t, "cookie", 0, 3))
	}
}

func preSharedKey(t *rapid.T, b *cryptobyte.Builder) {
	b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) {
		for range rapid.IntRange(0, 2).Draw(t, "identities") {
			b.AddUint16LengthPrefixed(bytesOf(t, "label", 0, 2))
			b.AddUint32(7)
		}
	})
	b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) {
		for range rapid.IntRange(0, 2).Draw(t, "binders") {
			b.AddUint8LengthPrefixed(bytesOf(t, "binder", 0, 2))
		}
	})
}

func bytesOf(t *rapid.T, label string, least, most int) cryptobyte.BuilderContinuation {
	content := rapid.SliceOfN(rapid.Byte(), least, most).Draw(t, label)
	return func(b *cryptobyte.Builder) { b.AddBytes(content) }
}

// TestPlainMutants changes hellos of real clients by a byte or two.
func TestPlainMutants(t *testing.T) {
	dice := rand.New(rand.NewPCG(7, 7))
	for _, b := range [][]byte{
		says(t, &tls.Config{ServerName: "shop.example.com", NextProtos: []string{"h2", "http/1.1"}}),
		resumed(t),
	} {
		if !agree(t, b) {
			t.Fatalf("a usual hello was left to crypto/tls:\n%x", b)
		}
		read := 0
		for range 20_000 {
			changed := slices.Clone(b)
			for range 1 + dice.IntN(2) {
				changed[9+dice.IntN(len(b)-9)] = byte(dice.UintN(256))
			}
			if agree(t, changed) {
				read++
			}
		}
		if read < 1000 || read == 20_000 {
			t.Errorf("%d of 20,000 were read", read)
		}
	}
}

// resumed is a hello with a session ticket of TLS 1.3, which is a pre-shared key.
func resumed(t *testing.T) []byte {
	t.Helper()
	certPEM, keyPEM := certificate.New(t, "shop.example.com")
	cert, err := tls.X509KeyPair([]byte(certPEM), []byte(keyPEM))
	if err != nil {
		t.Fatal(err)
	}
	cfg := &tls.Config{ServerName: "shop.example.com", InsecureSkipVerify: true, ClientSessionCache: tls.NewLRUClientSessionCache(1)}
	a, b := net.Pipe()
	served := make(chan error, 1)
	go func() {
		server := tls.Server(b, &tls.Config{Certificates: []tls.Certificate{cert}})
		err := server.HandshakeContext(context.Background())
		_, _ = server.Write([]byte{1}) // with the ticket before it
		served <- err
	}()
	client := tls.Client(a, cfg)
	if err := client.HandshakeContext(context.Background()); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if err := <-served; err != nil {
		t.Fatal(err)
	}
	_, _ = a.Close(), b.Close()
	return says(t, cfg)
}
