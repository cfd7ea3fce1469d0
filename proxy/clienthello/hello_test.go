package clienthello_test

import (
	"bytes"
	"crypto/ecdh"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"

	hellos "github.com/penstock/penstock/internal/testutil/clienthello"
	"github.com/penstock/penstock/proxy/clienthello"
)

// says returns the first bytes of a client of crypto/tls.
func says(t testing.TB, cfg *tls.Config) []byte {
	t.Helper()
	cfg = cfg.Clone()
	cfg.InsecureSkipVerify = true
	return hellos.Of(t, cfg)
}

// cut splits the contents of b's records into records of the given sizes; the last size is
// repeated.
func cut(b []byte, sizes ...int) (records []byte) {
	var message []byte
	for rest := b; len(rest) > 0; {
		n := int(binary.BigEndian.Uint16(rest[3:]))
		message = append(message, rest[5:5+n]...)
		rest = rest[5+n:]
	}
	for i := 0; len(message) > 0; i++ {
		n := min(sizes[min(i, len(sizes)-1)], len(message))
		records = append(records, 22, 3, 1, byte(n>>8), byte(n))
		records = append(records, message[:n]...)
		message = message[n:]
	}
	return records
}

// large returns protocols that make a hello of about n bytes, with no extension longer than
// allowed.
func large(n int) (protocols []string) {
	for ; n > 0; n -= 251 {
		protocols = append(protocols, strings.Repeat("x", min(n, 250)))
	}
	return protocols
}

func TestParse(t *testing.T) {
	for name, test := range map[string]struct {
		cfg  *tls.Config
		want clienthello.Info
	}{
		"name":              {&tls.Config{ServerName: "shop.example.com"}, clienthello.Info{ServerName: "shop.example.com"}},
		"name in capitals":  {&tls.Config{ServerName: "Shop.EXAMPLE.com"}, clienthello.Info{ServerName: "shop.example.com"}},
		"dot at the end":    {&tls.Config{ServerName: "shop.example.com."}, clienthello.Info{ServerName: "shop.example.com"}},
		"no name":           {&tls.Config{}, clienthello.Info{}},
		"address":           {&tls.Config{ServerName: "192.0.2.1"}, clienthello.Info{}},
		"protocols":         {&tls.Config{NextProtos: []string{"h2", "http/1.1"}}, clienthello.Info{ALPN: []string{"h2", "http/1.1"}}},
		"name and protocol": {&tls.Config{ServerName: "a.b", NextProtos: []string{"postgresql"}}, clienthello.Info{ServerName: "a.b", ALPN: []string{"postgresql"}}},
		"only TLS 1.2":      {&tls.Config{ServerName: "a.b", MaxVersion: tls.VersionTLS12}, clienthello.Info{ServerName: "a.b"}},
		"only TLS 1.0":      {&tls.Config{ServerName: "a.b", MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS10}, clienthello.Info{ServerName: "a.b"}},
		"60 KB":             {&tls.Config{ServerName: "a.b", NextProtos: large(60_000)}, clienthello.Info{ServerName: "a.b", ALPN: large(60_000)}},
	} {
		t.Run(name, func(t *testing.T) {
			b := says(t, test.cfg)
			for _, records := range [][]byte{b, cut(b, 1, 1, 1, 1, 1, 8000), cut(b, 100, 16000), cut(b, 3, 2, 9000), cut(b, 20)} {
				if need, err := clienthello.Length(records); err != nil || need != len(records) {
					t.Fatalf("Length of %d whole bytes: %d, %v", len(records), need, err)
				}
				behind := append(slices.Clone(records), "and what follows"...)
				got, err := clienthello.Parse(behind)
				if err != nil {
					t.Fatal(err)
				}
				if got.ServerName != test.want.ServerName || !slices.Equal(got.ALPN, test.want.ALPN) {
					t.Errorf("got %+v, want %+v", got, test.want)
				}
			}
		})
	}
}

// TestDrip delivers as many bytes as Length returns, and at each moment not one more. Length
// never returns less than it has, nor more than the hello, and never changes its result for
// bytes that it did not ask for.
func TestDrip(t *testing.T) {
	b := says(t, &tls.Config{ServerName: "shop.example.com", NextProtos: []string{"h2"}})
	long := says(t, &tls.Config{ServerName: "shop.example.com", NextProtos: large(9000)})
	for name, test := range map[string]struct {
		records []byte
		asks    int // largest number of calls
	}{
		"one record":               {b, 2},
		"two records":              {cut(b, 100), 4},
		"the header in two":        {cut(b, 2, 16000), 3},
		"the header in four":       {cut(b, 1, 1, 1, 1, 16000), 6},
		"16 records":               {cut(b, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 16000), 19},
		"records of one byte":      {cut(b, 1), 50},
		"of one byte, then of all": {cut(b, 1, 1, 1, 1, 1, 1, 16000), 8},
		"9 KB":                     {long, 2},
		"9 KB in records of 700":   {cut(long, 700), 19},
	} {
		t.Run(name, func(t *testing.T) {
			whole := test.records
			asks := 0
			for at := 0; at < len(whole); asks++ {
				need, err := clienthello.Length(whole[:at])
				if err != nil {
					t.Fatalf("after %d of %d bytes: %v", at, len(whole), err)
				}
				if need <= at || need > len(whole) {
					t.Fatalf("after %d of %d bytes it asks for %d", at, len(whole), need)
				}
				for between := at; between < need; between++ {
					if n, err := clienthello.Length(whole[:between]); err != nil || n < need || n > len(whole) {
						t.Fatalf("after %d bytes it asks for %d, %v, and after %d for %d", between, n, err, at, need)
					}
				}
				at = need
			}
			if asks > test.asks {
				t.Errorf("it asked %d times, want at most %d", asks, test.asks)
			}
			if _, err := clienthello.Parse(whole[:len(whole)-1]); !errors.Is(err, clienthello.ErrIncomplete) {
				t.Errorf("parsed without the last byte: %v", err)
			}
		})
	}
}

func TestRefused(t *testing.T) {
	b := says(t, &tls.Config{ServerName: "shop.example.com"})
	change := func(at int, to ...byte) []byte {
		c := slices.Clone(b)
		copy(c[at:], to)
		return c
	}
	name := bytes.Index(b, []byte("shop.example.com"))
	body := len(b) - 9
	for name, test := range map[string]struct {
		b    []byte
		want error
	}{
		"HTTP":                     {[]byte("GET / HTTP/1.1\r\n"), clienthello.ErrNotTLS},
		"one byte of HTTP":         {[]byte("G"), clienthello.ErrNotTLS},
		"SSH":                      {[]byte("SSH-2.0-"), clienthello.ErrNotTLS},
		"SSL 2":                    {[]byte{0x80, 0x2e, 1, 0, 2}, clienthello.ErrNotTLS},
		"TLS in the form of SSL 2": {[]byte{0x80, 0x1f, 1, 3, 3, 0, 6, 0, 0, 0, 16}, clienthello.ErrMalformed},
		"an alert":                 {[]byte{21, 3, 1, 0, 2, 2, 40}, clienthello.ErrMalformed},
		"another major version":    {[]byte{22, 4}, clienthello.ErrMalformed},
		"another type":             {[]byte{21, 0x10}, clienthello.ErrNotTLS},
		"another message":          {change(5, 2), clienthello.ErrMalformed},
		"an empty record":          {[]byte{22, 3, 1, 0, 0}, clienthello.ErrMalformed},
		"a huge record":            {[]byte{22, 3, 1, 0x40, 1}, clienthello.ErrMalformed},
		"a hello too short":        {change(6, 0, 0, 40), clienthello.ErrMalformed},
		"a hello too long":         {change(6, 1, 0, 0), clienthello.ErrTooLong},
		"the longest there is":     {change(6, 0xff, 0xff, 0xff), clienthello.ErrTooLong},
		"too many records":         {cut(says(t, &tls.Config{NextProtos: large(60_000)}), 2), clienthello.ErrTooLong},
		"another record within":    {append(cut(b, 100)[:105], 23), clienthello.ErrMalformed},
		"another version within":   {append(cut(b, 100)[:105], 22, 2), clienthello.ErrMalformed},
		"more in its record":       {append(change(3, byte((body+8)>>8), byte(body+8)), 14, 0, 0, 0), clienthello.ErrMalformed},
		"a session id too long":    {change(9+2+32, 255), clienthello.ErrMalformed},
		"dots at the name's end":   {change(name+14, '.', '.'), clienthello.ErrMalformed},
		"a space in the name":      {change(name+4, ' '), clienthello.ErrMalformed},
		"extensions cut off":       {append(append([]byte{22, 3, 1, 0, 104, 1, 0, 0, 100}, b[9:109]...), 0), clienthello.ErrMalformed},
		"nothing but zeros in it":  {append([]byte{22, 3, 1, byte((body + 4) >> 8), byte(body + 4), 1, 0, byte(body >> 8), byte(body)}, make([]byte, body)...), clienthello.ErrMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			if info, err := clienthello.Parse(test.b); !errors.Is(err, test.want) {
				t.Errorf("got %+v, %v; want %v", info, err, test.want)
			}
		})
	}
}

// TestAllocations: Length allocates nothing, since it is called again for each piece.
func TestAllocations(t *testing.T) {
	b := cut(says(t, &tls.Config{ServerName: "shop.example.com"}), 100)
	if n := testing.AllocsPerRun(100, func() {
		if _, err := clienthello.Length(b); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("Length allocates %v times", n)
	}
}

// TestNamesOfDNS: a name that is none of DNS is malformed, since servers make another one of it.
func TestNamesOfDNS(t *testing.T) {
	t.Parallel()
	usual := apart(says(t, &tls.Config{ServerName: "x"}))
	read := func(name string) (clienthello.Info, error) {
		return clienthello.Parse(inRecords(usual.with(sni(host(name))).message(), 1<<14))
	}
	for _, name := range []string{
		"a.example:443", "a.example:", "a.example:x", "a.example.:443", "a.example:443.", "[a.example]", "[::1]", "::1", "a.example/", "a.example\\", "a@a.example",
		"a.example,b", "*.example", "a.example ", " a.example", "a\ta.example", "a.example\x00", "a.example\x7f", "a.ex\u00e4mple", "a.example%", "a.example?", ".a.example",
		"a..example", "a.example..", ".", "", "a.example#", "a+a.example", "a.example;", "\"a.example\"", "a=b", "a~a",
	} {
		if info, err := read(name); !errors.Is(err, clienthello.ErrMalformed) {
			t.Errorf("%q: %+v, %v", name, info, err)
		}
	}
	for _, name := range []string{"a", "a.example", "_sip._tcp.a-b.example", "xn--bcher-kva.example", "192.0.2.1", "-a-.example", strings.Repeat("a.", 127) + "b"} {
		if info, err := read(name); err != nil || info.ServerName != name {
			t.Errorf("%q: %+v, %v", name, info, err)
		}
	}
}

// TestADotAtTheEnd: a name is the same with a dot behind it, which clients send though RFC 6066 forbids it.
func TestADotAtTheEnd(t *testing.T) {
	t.Parallel()
	b := inRecords(apart(says(t, &tls.Config{ServerName: "x"})).with(sni(host("Shop.example."))).message(), 100)
	if info, err := clienthello.Parse(b); err != nil || info.ServerName != "shop.example" {
		t.Errorf("%+v, %v", info, err)
	}
}

// TestManyProtocols: more protocols than a client can speak are not kept.
func TestManyProtocols(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]error{200: nil, 1024: nil, 1025: clienthello.ErrMalformed} {
		info, err := clienthello.Parse(says(t, &tls.Config{ServerName: "a.test", NextProtos: slices.Repeat([]string{"spdy/3"}, n)}))
		if !errors.Is(err, want) || err == nil && len(info.ALPN) != n {
			t.Errorf("%d protocols: %d, %v", n, len(info.ALPN), err)
		}
	}
}

// TestEncrypted: of an encrypted hello the outer name is returned.
func TestEncrypted(t *testing.T) {
	b := says(t, &tls.Config{
		ServerName:                     "secret.example.com",
		MinVersion:                     tls.VersionTLS13,
		EncryptedClientHelloConfigList: configList(t, "front.example.com"),
	})
	got, err := clienthello.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	if got.ServerName != "front.example.com" {
		t.Errorf("got %q, want the outer name", got.ServerName)
	}
}

// configList makes an ECHConfigList (RFC 9849, 4) with the outer name.
func configList(t *testing.T, name string) []byte {
	t.Helper()
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	pub := key.PublicKey().Bytes()
	contents := []byte{7, 0, 0x20} // config id, DHKEM(X25519, HKDF-SHA256)
	contents = append(binary.BigEndian.AppendUint16(contents, uint16(len(pub))), pub...)
	contents = append(contents, 0, 4, 0, 1, 0, 1, 0) // HKDF-SHA256, AES-128-GCM; no limit of the name's length
	contents = append(append(contents, byte(len(name))), name...)
	contents = append(contents, 0, 0) // no extensions
	config := binary.BigEndian.AppendUint16([]byte{0xfe, 0x0d}, uint16(len(contents)))
	config = append(config, contents...)
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(config))), config...)
}

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
