package match_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/penstock/penstock/proxy/internal/firstbytes"
	"github.com/penstock/penstock/proxy/internal/match"
	"github.com/penstock/penstock/proxy/internal/proxyproto"
	"github.com/penstock/penstock/proxy/internal/source"
	"pgregory.net/rapid"
)

func table(t testing.TB, routes ...match.Route) *match.Table {
	t.Helper()
	m, err := match.New(routes)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func prefixes(s ...string) (list []source.Rule) {
	for _, each := range s {
		list = append(list, source.Prefix(netip.MustParsePrefix(each)))
	}
	return list
}

func at(addr string) source.Source {
	return source.TCP(netip.AddrPortFrom(netip.MustParseAddr(addr), 1))
}

func TestFind(t *testing.T) {
	m := table(t,
		match.Route{SNI: []string{"shop.example.com"}, ALPN: []string{"h2"}},                               // 0
		match.Route{SNI: []string{"*.Example.com", "example.net."}},                                        // 1
		match.Route{SNI: []string{"shop.example.com"}},                                                     // 2: never
		match.Route{Source: prefixes("10.1.0.0/16", "2001:db8::/32")},                                      // 3
		match.Route{ALPN: []string{"postgresql", "redis"}, Port: 443},                                      // 4
		match.Route{SNI: []string{"*"}, Source: prefixes("192.0.2.0/24")},                                  // 5
		match.Route{SNI: []string{"*.deep.example.org", "a.example.org"}, Port: 8443, ALPN: []string{"x"}}, // 6
		match.Route{Port: 9000},                                   // 7
		match.Route{Source: []source.Rule{source.UnixUser(1000)}}, // 8
	)
	for name, test := range map[string]struct {
		client match.Client
		want   int
	}{
		"name and protocol":               {match.Client{ServerName: "shop.example.com", ALPN: []string{"http/1.1", "h2"}}, 0},
		"wildcard":                        {match.Client{ServerName: "shop.example.com"}, 1},
		"wildcard of several labels":      {match.Client{ServerName: "a.b.c.example.com"}, 1},
		"not the wildcard's own name":     {match.Client{ServerName: "example.com"}, -1},
		"not another that ends alike":     {match.Client{ServerName: "anexample.com"}, -1},
		"second name":                     {match.Client{ServerName: "example.net"}, 1},
		"source":                          {match.Client{ServerName: "other.test", Source: at("10.1.2.3")}, 3},
		"source without a name":           {match.Client{Source: at("2001:db8::1")}, 3},
		"source mapped":                   {match.Client{Source: at("::ffff:10.1.2.3")}, 3},
		"source with a zone":              {match.Client{Source: at("2001:db8::1%eth0")}, 3},
		"the earlier one, though by name": {match.Client{ServerName: "a.example.com", Source: at("10.1.2.3")}, 1},
		"protocol and port":               {match.Client{ALPN: []string{"redis"}, Port: 443}, 4},
		"protocol, another port":          {match.Client{ALPN: []string{"redis"}, Port: 444}, -1},
		"any name from there":             {match.Client{ServerName: "x", Source: at("192.0.2.9")}, 5},
		"no name from there":              {match.Client{Source: at("192.0.2.9")}, -1},
		"all of it":                       {match.Client{ServerName: "b.deep.example.org", ALPN: []string{"x"}, Port: 8443}, 6},
		"all but the protocol":            {match.Client{ServerName: "b.deep.example.org", Port: 8443}, -1},
		"port":                            {match.Client{ServerName: "b.deep.example.org", Port: 9000}, 7},
		"user":                            {match.Client{Source: source.Unix(source.Credentials{UID: 1000})}, 8},
		"another user":                    {match.Client{Source: source.Unix(source.Credentials{UID: 1001})}, -1},
		"nothing is known":                {match.Client{}, -1},
		"no label before the wildcard's":  {match.Client{ServerName: ".example.com"}, -1},
	} {
		t.Run(name, func(t *testing.T) {
			if got := m.Find(&test.client); got != test.want {
				t.Errorf("route %d, want %d", got, test.want)
			}
		})
	}
}

func TestHello(t *testing.T) {
	if table(t, match.Route{Port: 1}, match.Route{Source: prefixes("::/0")}).Hello() {
		t.Error("it wants a hello, and needs none")
	}
	if !table(t, match.Route{Port: 1}, match.Route{ALPN: []string{"h2"}}).Hello() {
		t.Error("it does not want the hello, which has the ALPN")
	}
	if table(t).Find(&match.Client{ServerName: "a"}) != -1 {
		t.Error("found a route where there is none")
	}
}

func TestPattern(t *testing.T) {
	for given, want := range map[string]string{
		"a.example.com": "a.example.com", "A.Example.COM.": "a.example.com", "*.example.com": "*.example.com",
		"*": "*", "localhost": "localhost", "_x.a-b.c": "_x.a-b.c", "xn--bcher-kva.example": "xn--bcher-kva.example",
	} {
		if got, err := match.Pattern(given); err != nil || got != want {
			t.Errorf("%q: %q, %v; want %q", given, got, err, want)
		}
	}
	for given, want := range map[string]string{
		"":                               "is not a host name",
		"a..b":                           "is not a host name",
		".example.com":                   "is not a host name",
		"*.":                             "*.example.com",
		"a.*.com":                        "*.example.com",
		"*a.example.com":                 "*.example.com",
		"**.example.com":                 "*.example.com",
		"bücher.example":                 "xn--",
		"a b":                            "xn--",
		"example.com:443":                "xn--",
		strings.Repeat("x", 64) + ".de":  "is not a host name",
		strings.Repeat("x.", 127) + "de": "253",
	} {
		if got, err := match.Pattern(given); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %q, %v; want an error with %q", given, got, err, want)
		}
	}
	if _, err := match.New([]match.Route{{}, {SNI: []string{"a", "b..c"}}}); err == nil || !strings.HasPrefix(err.Error(), "route 2: ") {
		t.Errorf("the error does not name the route: %v", err)
	}
}

// TestModel holds Find against a search that tries one route after the other.
func TestModel(t *testing.T) {
	label := rapid.SampledFrom([]string{"a", "b", "example", "com"})
	name := rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(label, 1, 4).Draw(t, "labels"), ".")
	})
	pattern := rapid.Custom(func(t *rapid.T) string {
		return rapid.SampledFrom([]string{"", "", "*."}).Draw(t, "wild") + name.Draw(t, "name")
	})
	protocol := rapid.SampledFrom([]string{"h2", "http/1.1", "x"})
	from := rapid.SampledFrom([]source.Source{{}, at("10.0.0.1"), at("10.9.0.1"), at("fe80::1"), source.Unix(source.Credentials{UID: 1})})
	prefix := rapid.SampledFrom(append(prefixes("10.0.0.0/8", "10.0.0.0/16", "::/0", "10.9.0.1/32"), source.All(), source.UnixClients()))
	port := rapid.SampledFrom([]uint16{0, 443, 444})
	rapid.Check(t, func(t *rapid.T) {
		routes := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) match.Route {
			return match.Route{
				SNI:    rapid.SliceOfN(rapid.OneOf(pattern, rapid.Just("*")), 0, 3).Draw(t, "sni"),
				ALPN:   rapid.SliceOfN(protocol, 0, 2).Draw(t, "alpn"),
				Source: rapid.SliceOfN(prefix, 0, 2).Draw(t, "source"),
				Port:   port.Draw(t, "port"),
			}
		}), 0, 20).Draw(t, "routes")
		m, err := match.New(routes)
		if err != nil {
			t.Fatal(err)
		}
		for range 10 {
			c := match.Client{
				ServerName: rapid.OneOf(name, rapid.Just("")).Draw(t, "name"),
				ALPN:       rapid.SliceOfN(protocol, 0, 2).Draw(t, "offered"),
				Source:     from.Draw(t, "from"), Port: port.Draw(t, "to"),
			}
			if got, want := m.Find(&c), search(routes, &c); got != want {
				t.Fatalf("%+v: route %d, want %d", c, got, want)
			}
		}
	})
}

func search(routes []match.Route, c *match.Client) int {
	for i, r := range routes {
		sni, alpn, from := len(r.SNI) == 0, len(r.ALPN) == 0, len(r.Source) == 0
		for _, p := range r.SNI {
			sni = sni || p == c.ServerName || p == "*" && c.ServerName != "" ||
				strings.HasPrefix(p, "*.") && strings.HasSuffix(c.ServerName, p[1:])
		}
		for _, p := range r.ALPN {
			for _, o := range c.ALPN {
				alpn = alpn || p == o
			}
		}
		for _, p := range r.Source {
			from = from || p.Contains(c.Source)
		}
		if sni && alpn && from && (r.Port == 0 || r.Port == c.Port) {
			return i
		}
	}
	return -1
}

// names makes n routes, each with a name and a wildcard of its own.
func names(t testing.TB, n int) *match.Table {
	routes := make([]match.Route, n)
	for i := range routes {
		routes[i].SNI = []string{fmt.Sprintf("host%d.example.com", i), fmt.Sprintf("*.tenant%d.example.net", i)}
	}
	return table(t, routes...)
}

func TestAllocations(t *testing.T) {
	m := names(t, 100)
	c := &match.Client{ServerName: "a.b.tenant77.example.net", ALPN: []string{"h2"}, Source: at("10.0.0.1")}
	if n := testing.AllocsPerRun(100, func() {
		if m.Find(c) != 77 {
			t.Fatal("another route")
		}
	}); n > 0 {
		t.Errorf("Find allocates %v times", n)
	}
}

// TestFindAfter: the routes that fit a client come one after the other, the first one as Find has it.
func TestFindAfter(t *testing.T) {
	names := rapid.SampledFrom([]string{"a.example", "b.a.example", "c.b.a.example", "example", ".example", "a..example", ""})
	patterns := rapid.SampledFrom([]string{"a.example", "*.a.example", "*.example", "*", "B.A.example"})
	rapid.Check(t, func(t *rapid.T) {
		var routes []match.Route
		for range rapid.IntRange(1, 6).Draw(t, "routes") {
			routes = append(routes, match.Route{
				SNI: rapid.SliceOfN(patterns, 0, 2).Draw(t, "sni"), Port: rapid.SampledFrom([]uint16{0, 0, 1}).Draw(t, "port"),
			})
		}
		table, err := match.New(routes)
		if err != nil {
			t.Fatal(err)
		}
		c := &match.Client{ServerName: names.Draw(t, "name"), Port: 2}
		if i, err := table.FindAfter(c, -1); i != table.Find(c) || err != nil {
			t.Fatalf("%d, %v", i, err)
		}
		for after := range routes { // the table of the routes after one finds the same
			rest, err := match.New(routes[after+1:])
			if err != nil {
				t.Fatal(err)
			}
			want := rest.Find(c)
			if want >= 0 {
				want += after + 1
			}
			if got, err := table.FindAfter(c, after); got != want || err != nil {
				t.Fatalf("after %d: %d, want %d", after, got, want)
			}
		}
	})
}

// TestHiddenLogin: a client whose user and database cannot be read takes no route behind one that they might decide.
func TestHiddenLogin(t *testing.T) {
	table, err := match.New([]match.Route{
		{SNI: []string{"orders.test"}},
		{SNI: []string{"db.test"}, Databases: []string{"shop"}},
		{ALPN: []string{"postgresql"}},
		{Users: []string{"admin"}},
		{},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		client match.Client
		after  int
		want   int
		doubt  bool
	}{
		{match.Client{ServerName: "orders.test"}, match.None, 0, false},
		{match.Client{ServerName: "db.test"}, match.None, match.None, true},
		{match.Client{ServerName: "other.test", ALPN: []string{"postgresql"}}, match.None, 2, false},
		{match.Client{ServerName: "db.test", ALPN: []string{"postgresql"}}, 1, 2, false},
		{match.Client{}, match.None, match.None, true},
		{match.Client{}, 3, 4, false},
		{match.Client{}, 4, match.None, false},
		{match.Client{User: said("eve")}, match.None, 4, false},
		{match.Client{User: said("admin")}, match.None, 3, false},
		{match.Client{User: said("ADMIN")}, match.None, match.None, true},
		{match.Client{User: said("adm\u0131n")}, match.None, match.None, true},
		{match.Client{User: said("adm\u0130n")}, match.None, match.None, true},
		{match.Client{User: firstbytes.Property{Verdict: firstbytes.No}}, match.None, 4, false},
		{match.Client{ServerName: "db.test", User: said("eve"), Database: said("Shop")}, match.None, match.None, true},
		{match.Client{ServerName: "db.test", User: said("eve"), Database: firstbytes.Property{Verdict: firstbytes.Doubt, Value: "x"}}, match.None, match.None, true},
		{match.Client{ServerName: "other.test", User: said("eve"), Database: firstbytes.Property{Verdict: firstbytes.Doubt, Value: "x"}}, match.None, 4, false},
	} {
		got, err := table.FindAfter(&c.client, c.after)
		if got != c.want || errors.Is(err, match.ErrUndecided) != c.doubt || (err != nil) != c.doubt {
			t.Errorf("%+v after %d: %d, %v, want %d", c.client, c.after, got, err, c.want)
		}
	}
}

func said(name string) firstbytes.Property {
	return firstbytes.Property{Verdict: firstbytes.Yes, Value: name}
}

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

func ExampleTable_Find() {
	table, err := match.New([]match.Route{
		{SNI: []string{"shop.example.com"}, ALPN: []string{"h2"}},
		{SNI: []string{"*.example.com"}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(table.Find(&match.Client{ServerName: "shop.example.com", ALPN: []string{"h2", "http/1.1"}}))
	fmt.Println(table.Find(&match.Client{ServerName: "shop.example.com"}))
	fmt.Println(table.Find(&match.Client{ServerName: "example.com"}))
	// Output:
	// 0
	// 1
	// -1
}
