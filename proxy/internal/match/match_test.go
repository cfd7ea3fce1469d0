package match_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/penstock/penstock/proxy/internal/match"
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
		"":                               "is no name",
		"a..b":                           "is no name",
		".example.com":                   "is no name",
		"*.":                             "*.example.com",
		"a.*.com":                        "*.example.com",
		"*a.example.com":                 "*.example.com",
		"**.example.com":                 "*.example.com",
		"bücher.example":                 "xn--",
		"a b":                            "xn--",
		"example.com:443":                "xn--",
		strings.Repeat("x", 64) + ".de":  "is no name",
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

func BenchmarkFind(b *testing.B) {
	for _, n := range []int{10, 10_000} {
		m := names(b, n)
		for _, name := range []string{"host7.example.com", "a.tenant7.example.net", "a.b.c.d.example.org"} {
			b.Run(fmt.Sprintf("%d/%s", n, name), func(b *testing.B) {
				b.ReportAllocs()
				c := &match.Client{ServerName: name}
				for b.Loop() {
					m.Find(c)
				}
			})
		}
	}
}
