package match_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/penstock/penstock/proxy/internal/firstbytes"
	"github.com/penstock/penstock/proxy/internal/match"
	"github.com/penstock/penstock/proxy/internal/proxyproto"
	"pgregory.net/rapid"
)

// sent is what clients send, each whole in the end.
var sent = []string{
	"GET / HTTP/1.1\r\nHost: a.b\r\n\r\n", "GET /x/y HTTP/1.1\r\nHost: B\r\n\r\n", "GET /x HTTP/1.1\r\nHost: a.b\r\nHost: b\r\n\r\n",
	"GET /x/../y HTTP/1.1\r\nHost: a.b\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "SSH-2.0-x\r\n", "PING\r\n", "\x01\x02\x03\x04",
	"\x00\x00\x00\x0f\x00\x03\x00\x00user\x00u\x00", "\x00\x00\x00\x10\x00\x03\x00\x00user\x00u\x00\x00", "\x00\x00\x00\x08\x04\xd2\x16\x2f",
	"\x16\x03\x01\x00\x00", "\x15\x03\x01\x00\x02\x01\x5a",
}

// TestDecideModel: whatever routes there are, a client whose bytes come one by one is decided for the route that its bytes
// have at once, or not at all; it is never decided for one behind a route that may be its own; and a silent one gets
// to a route by silence, or to none, if there is one. One whose hello is malformed gets to no route behind one by name.
func TestDecideModel(t *testing.T) {
	pick := func(from ...string) *rapid.Generator[[]string] {
		return rapid.Custom(func(t *rapid.T) []string {
			if rapid.IntRange(0, 3).Draw(t, "given") > 0 {
				return nil
			}
			return rapid.SliceOfN(rapid.SampledFrom(from), 1, 2).Draw(t, "list")
		})
	}
	one := rapid.Custom(func(t *rapid.T) match.Route {
		r := match.Route{
			Host: pick("a.b", "*.b", "b", "*").Draw(t, "host"), Path: pick("/", "/x", "/x/*", "/*").Draw(t, "path"),
			User: pick("u", "v").Draw(t, "user"), Database: pick("u").Draw(t, "database"), SNI: pick("a").Draw(t, "sni"),
			Port: rapid.SampledFrom([]uint16{0, 0, 0, 1}).Draw(t, "port"),
		}
		if rapid.Bool().Draw(t, "protocol") {
			r.Protocols = firstbytes.Set(rapid.IntRange(0, 1<<firstbytes.Protocols-1).Draw(t, "protocols"))
		}
		if rapid.IntRange(0, 4).Draw(t, "bytes") == 0 {
			r.Bytes = []firstbytes.Pattern{{Offset: 1, Bytes: []byte(rapid.SampledFrom([]string{"SH", "ET", "\x02\x03"}).Draw(t, "pattern"))}}
		}
		return r
	})
	rapid.Check(t, func(t *rapid.T) {
		routes := rapid.SliceOfN(one, 1, 6).Draw(t, "routes")
		resorts := slices.ContainsFunc(routes, func(r match.Route) bool { return r.Protocols.Has(firstbytes.Silence) })
		m, err := match.New(routes)
		if err != nil {
			t.Fatal(err)
		}
		if m.Recogniser() == nil {
			t.Skip("no route depends on first bytes")
		}
		b := []byte(rapid.SampledFrom(sent).Draw(t, "sent"))
		b = b[:min(len(b), m.Recogniser().Max())]
		whole, atOnce := decide(m, [][]byte{b}, false)
		var pieces [][]byte
		for n := range len(b) + 1 {
			pieces = append(pieces, b[:n])
		}
		dripped, byByte := decide(m, pieces, false)
		if whole != dripped || (atOnce == nil) != (byByte == nil) {
			t.Fatalf("%q: route %d, %v; byte by byte %d, %v", b, whole, atOnce, dripped, byByte)
		}
		if i, err := decide(m, [][]byte{nil}, true); err == nil && i == match.None && m.Len() > 0 && resorts {
			if _, unknown := decide(m, [][]byte{nil}, false); unknown != nil {
				t.Fatal("a silent client gets to the default route, though it may have another one")
			}
		}
	})
}

// decide returns the first decision while bytes come.
func decide(m *match.Table, prefixes [][]byte, silent bool) (route int, err error) {
	f := firstbytes.Facts{Silent: silent}
	for _, b := range prefixes {
		m.Recogniser().Look(b, &f)
		if route, err = m.Decide(&match.Client{First: &f}, match.None); err == nil {
			break
		}
		if !errors.Is(err, match.ErrUndecided) {
			panic(err)
		}
	}
	return route, err
}

// TestDecide: the order of routes counts, and what is in doubt.
func TestDecide(t *testing.T) {
	m := table(t,
		match.Route{Protocols: firstbytes.SetOf(firstbytes.SSH), Port: 7},
		match.Route{Host: []string{"*.A.test", "b.test"}, Path: []string{"/x/*", "/y"}},
		match.Route{Protocols: firstbytes.SetOf(firstbytes.HTTP1, firstbytes.Redis)},
		match.Route{Protocols: firstbytes.SetOf(firstbytes.Silence)},
		match.Route{TLVs: []match.TLV{{Type: 0xe0, Value: []byte("v")}}},
	)
	const undecided = -2
	for sent, want := range map[string]int{
		"SSH-2.0-x\r\n": match.None,
		"GET /x/z HTTP/1.1\r\nHost: c.a.test\r\n\r\n":               1,
		"GET /y HTTP/1.1\r\nHost: B.test:1\r\n\r\n":                 1,
		"GET /x HTTP/1.1\r\nHost: b.test\r\n\r\n":                   2,
		"GET /x/z HTTP/1.1\r\nHost: a.test\r\n\r\n":                 2,
		"GET /x/z HTTP/1.1\r\nHost: ":                               undecided,
		"GET /z HTTP/1.1\r\nHost: ":                                 2, // the path is known
		"GET /x/z HTTP/1.1\r\nHost: b.test\r\nHost: c.test\r\n\r\n": undecided,
		"GET /x//z HTTP/1.1\r\nHost: c.test\r\n\r\n":                2, // the host is known
		"GET /x//z HTTP/1.1\r\nHost: b.test\r\n\r\n":                undecided,
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n":                          undecided,
		"PING\r\n":                                                  2,
		"EHLO x\r\n":                                                match.None,
		"":                                                          undecided,
	} {
		got, err := decide(m, [][]byte{[]byte(sent)}, false)
		if err != nil {
			got = undecided
		}
		if got != want {
			t.Errorf("%q: route %d, %v; want %d", sent, got, err, want)
		}
	}
	if got, err := decide(m, [][]byte{nil}, true); got != 3 || err != nil {
		t.Errorf("silence: %d, %v", got, err)
	}
}

// TestTLVs: one of the header's TLVs is one of the route's.
func TestTLVs(t *testing.T) {
	m := table(t,
		match.Route{TLVs: []match.TLV{{Type: 0xe0, Value: []byte("v")}, {Type: 0xe1, Any: true}}},
		match.Route{TLVs: []match.TLV{{Type: 0xe0}}},
	)
	for raw, want := range map[string]int{
		"\xe0\x00\x01v":                 0,
		"\xe0\x00\x01w":                 match.None,
		"\xe0\x00\x01w\xe0\x00\x01v":    0,
		"\xe1\x00\x03abc":               0,
		"\xe0\x00\x00":                  1,
		"":                              match.None,
		"\xe2\x00\x04\xe1\x00\x01v\x00": match.None,
	} {
		if got := m.Find(&match.Client{TLVs: []byte(raw)}); got != want {
			t.Errorf("%q: route %d, want %d", raw, got, want)
		}
	}
	if m.Recogniser() != nil {
		t.Error("TLVs need no first bytes")
	}
	if _, ok := proxyproto.Find([]byte("\xe1\x00\x03abc"), 0xe1); !ok {
		t.Error("the TLV is none")
	}
}

// TestPathPattern: patterns of paths are compared as paths are.
func TestPathPattern(t *testing.T) {
	for given, want := range map[string]string{"/": "/", "/a": "/a", "/a/*": "/a/*", "/*": "/*", "/%61/*": "/a/*"} {
		if got, err := match.PathPattern(given); got != want || err != nil {
			t.Errorf("%q: %q, %v", given, got, err)
		}
	}
	for _, given := range []string{"", "a", "/a*", "/*/a", "/../a", "/a//b", "*"} {
		if got, err := match.PathPattern(given); err == nil {
			t.Errorf("%q: %q", given, got)
		}
	}
	if _, err := match.New([]match.Route{{}, {Host: []string{"a..b"}}}); err == nil {
		t.Error("a host that is none is taken")
	}
	if _, err := match.New([]match.Route{{Bytes: slices.Collect(patterns(firstbytes.MaxPatterns + 1))}}); err == nil {
		t.Error("more patterns are taken than there may be")
	}
}

func patterns(n int) func(yield func(firstbytes.Pattern) bool) {
	return func(yield func(firstbytes.Pattern) bool) {
		for i := range n {
			if !yield(firstbytes.Pattern{Offset: i, Bytes: []byte("x")}) {
				return
			}
		}
	}
}

// TestDecideAllocates: looking again allocates nothing, and the whole look the values of properties.
func TestDecideAllocates(t *testing.T) {
	m := table(t, match.Route{Host: []string{"*.a.test"}}, match.Route{Bytes: []firstbytes.Pattern{{Bytes: []byte("x")}}})
	b, short := []byte("GET / HTTP/1.1\r\nHost: c.a.test\r\n\r\n"), []byte("GET ")
	if n := testing.AllocsPerRun(100, func() {
		var f firstbytes.Facts
		m.Recogniser().Look(short, &f)
		if _, err := m.Decide(&match.Client{First: &f}, match.None); err == nil {
			t.Fatal("decided")
		}
	}); n > 1 { // the facts themselves, which are a client's
		t.Errorf("an early look allocates %v times", n)
	}
	if n := testing.AllocsPerRun(100, func() {
		var f firstbytes.Facts
		m.Recogniser().Look(b, &f)
		if i, err := m.Decide(&match.Client{First: &f}, match.None); i != 0 {
			t.Fatal(i, err)
		}
	}); n > 12 {
		t.Errorf("a look allocates %v times", n)
	}
}

// BenchmarkDecide is one look at a whole request, and the decision for the last of the routes by host.
func BenchmarkDecide(b *testing.B) {
	request := []byte("GET /index.html HTTP/1.1\r\nHost: last.example.com\r\nUser-Agent: benchmark\r\nAccept: */*\r\n\r\n")
	for _, n := range []int{10, 10_000} {
		routes := make([]match.Route, n)
		for i := range routes {
			routes[i].Host = []string{fmt.Sprintf("host%d.example.com", i)}
		}
		routes[n-1].Host = []string{"last.example.com"}
		m := table(b, routes...)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				var f firstbytes.Facts
				m.Recogniser().Look(request, &f)
				if i, err := m.Decide(&match.Client{First: &f}, match.None); i != n-1 {
					b.Fatal(i, err)
				}
			}
		})
	}
}
