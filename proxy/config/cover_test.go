package config_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/internal/match"
	clients "github.com/penstock/penstock/proxy/internal/source"
)

// warned compares the warnings of a text, in short form, with the expected ones.
func warned(t *testing.T, text string, want ...string) {
	t.Helper()
	var got []string
	for _, w := range load(t, text).Warnings {
		got = append(got, short(w))
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s\n got %s\nwant %s", text, strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
}

// TestCoveredRoutes: a route is warned of if and only if an earlier one matches all of its
// clients.
func TestCoveredRoutes(t *testing.T) {
	for _, c := range []struct {
		first, second string
		covered       bool
	}{
		{"sni: ['*.b']", "sni: [c.b]", true},
		{"sni: ['*.b']", "sni: ['*.c.b', d.e.b]", true},
		{"sni: ['*.b', x]", "sni: [X, c.b]", true},
		{"sni: ['*']", "sni: ['*.c']", true},
		{"sni: ['*.b']", "sni: [b]", false},
		{"sni: ['*.b']", "sni: [cb]", false},
		{"sni: ['*.c.b']", "sni: ['*.b']", false},
		{"sni: ['*.b']", "sni: [c.b, d]", false},
		{"sni: ['*.b']", "sni: ['*']", false},
		{"sni: ['*']", "alpn: [h2]", false},
		{"source: [10.0.0.0/8]", "source: [10.1.0.0/16]", true},
		{"source: [10.0.0.0/8, 11.0.0.0/8]", "source: [10.1.0.0/16, 11.0.0.1]", true},
		{"source: [10.1.0.0/16]", "source: [10.0.0.0/8]", false},
		{"source: [10.0.0.0/16]", "source: [10.0.0.0/8]", false},
		{"source: [10.0.0.0/8]", "source: [10.1.0.0/16, 192.0.2.1]", false},
		{"source: ['::/0']", "source: [10.0.0.0/8]", false},
		{"source: [0.0.0.0/0, '::/0']", "sni: [x]", false}, // a client of a unix socket has no source
		{"alpn: [h2, x]", "alpn: [h2], sni: [a]", true},
		{"alpn: [h2]", "alpn: [h2, x]", false},
		{"port: 1", "port: 1, sni: [a]", true},
		{"port: 1", "sni: [a]", false},
		{"port: 1, sni: ['*.b']", "sni: [c.b]", false},
		{"sni: ['*.b']", "sni: [c.b], port: 1, alpn: [h2], source: [10.0.0.0/8]", true},
		{"protocol: [ssh, http1]", "host: [a]", true},
		{"protocol: [http1]", "path: [/a], port: 1", true},
		{"protocol: [ssh]", "protocol: [ssh, redis]", false},
		{"protocol: [ssh]", "host: [a]", false},
		{"host: ['*.b']", "host: [c.b], path: [/a]", true},
		{"host: [b], path: [/a]", "host: [b]", false},
		{"path: [/a/*]", "path: [/a/b, /a/c/*]", true},
		{"path: [/a/*]", "path: [/a]", false},
		{"path: ['/*']", "path: [/]", true},
		{"user: [a, b]", "user: [b], database: [c]", true},
		{"bytes: [{text: ab}]", "bytes: [{hex: '6162'}, {text: b}]", false},
	} {
		text := fmt.Sprintf("listeners:\n- name: a\n  bind: ':1'\n  routes:\n  - {match: {%s}, upstream: u}\n  - {match: {alpn: [zzz]}, upstream: w}\n  - {match: {%s}, upstream: v}", c.first, c.second) +
			"\nupstreams: [{name: u, endpoints: ['h:1']}, {name: v, endpoints: ['h:1']}, {name: w, endpoints: ['h:2']}]\n"
		if c.covered {
			warned(t, text, "7:5: this route is never reached: all its clients are matched by the one in line 5 | put it before that one, or leave it out")
		} else {
			warned(t, text)
		}
	}
}

// TestCoversIsCertain: no client reaches a route that is reported as covered.
func TestCoversIsCertain(t *testing.T) {
	names := []string{"a", "b.a", "c.b.a", "c"}
	rules := []config.Rule{clients.All(), clients.UnixClients(), clients.UnixUser(1), clients.UnixGroup(1), clients.UnixUser(2)}
	for _, n := range []string{"10.0.0.0/8", "10.0.0.0/16", "10.1.0.0/16", "10.1.1.1/32", "::/0", "0.0.0.0/0"} {
		rules = append(rules, clients.Prefix(netip.MustParsePrefix(n)))
	}
	sources := []clients.Source{{}, clients.Unix(clients.Credentials{UID: 1, GID: 2}), clients.Unix(clients.Credentials{UID: 2, GID: 1})}
	for _, a := range []string{"10.1.1.1", "10.1.1.2", "10.2.0.0", "11.0.0.0", "::1"} {
		sources = append(sources, clients.TCP(netip.AddrPortFrom(netip.MustParseAddr(a), 1)))
	}
	pick := func(from ...string) *rapid.Generator[[]string] {
		return rapid.SliceOfN(rapid.SampledFrom(from), 0, 2)
	}
	route := rapid.Custom(func(t *rapid.T) config.Match {
		m := config.Match{
			Source: rapid.SliceOfN(rapid.SampledFrom(rules), 0, 2).Draw(t, "source"),
			SNI:    pick("a", "b.a", "c.b.a", "*.a", "*.b.a", "*").Draw(t, "sni"),
			ALPN:   pick("h2", "x").Draw(t, "alpn"), Port: rapid.IntRange(0, 2).Draw(t, "port"),
		}
		return m
	})
	client := rapid.Custom(func(t *rapid.T) match.Client {
		c := match.Client{
			ServerName: rapid.SampledFrom(append(names, "")).Draw(t, "name"), ALPN: pick("h2", "x").Draw(t, "offered"),
			Port: uint16(rapid.IntRange(1, 2).Draw(t, "to")), Source: rapid.SampledFrom(sources).Draw(t, "from"),
		}
		return c
	})
	rapid.Check(t, func(t *rapid.T) {
		routes, all := rapid.SliceOfN(route, 10, 10).Draw(t, "routes"), rapid.SliceOfN(client, 20, 20).Draw(t, "clients")
		for i := range routes {
			for j := range routes {
				if i != j && config.Covers(&routes[i], &routes[j]) {
					neverReached(t, &routes[i], &routes[j], all)
				}
			}
		}
	})
}

// neverReached requires that no client reaches the second of two routes.
func neverReached(t *rapid.T, first, second *config.Match, all []match.Client) {
	table, err := match.New([]match.Route{matcher(first), matcher(second)})
	if err != nil {
		t.Fatal(err)
	}
	for i := range all {
		if table.Find(&all[i]) == 1 {
			t.Fatalf("%+v gets to %+v behind %+v", all[i], second, first)
		}
	}
}

func matcher(m *config.Match) match.Route {
	return match.Route{SNI: m.SNI, ALPN: m.ALPN, Source: m.Source, Port: uint16(m.Port)}
}

// TestManyRoutes: the number of comparisons is limited.
func TestManyRoutes(t *testing.T) {
	ln := &config.Listener{Routes: make([]config.Route, 20_000)}
	for i := range ln.Routes {
		ln.Routes[i].Match.SNI = []string{fmt.Sprint("a", i), "b"}
	}
	if n := config.Compared(ln); n > 1_000_100 {
		t.Errorf("%d comparisons", n)
	}
}

// TestSocketsWithoutDirectory: the directory of a socket is checked.
func TestSocketsWithoutDirectory(t *testing.T) {
	warned(t, "admin: {bind: 'unix:/none/a'}\nlisteners: [{name: a, bind: ['unix:/none/s?mode=0600', 'unix:/x/s', 'unix:@none/s', ':1', 'systemd:x'], upstream: u}]\nupstreams: [{name: u, endpoints: ['unix:/none/e']}]\n",
		"1:15: this machine has no directory /none | make it before penstock run, or write another path",
		"2:30: this machine has no directory /none | make it before penstock run, or write another path")
}

// TestSessionLogWithoutDirectory: the directory of a session log is checked, and that it is none itself.
func TestSessionLogWithoutDirectory(t *testing.T) {
	warned(t, "session_log: {to: /none/sessions.log}"+smallest,
		"1:19: this machine has no directory /none | make it before penstock run, or write another path")
	for _, to := range []string{"/x/sessions.log", "stderr", "journald", "'syslog+unix:/none/log'", "'syslog+udp://192.0.2.1:514'"} {
		warned(t, "session_log: {to: "+to+"}"+smallest)
	}
	_, problems := config.LoadTree(config.Tree{"/etc/p.yaml": "session_log: {to: /var/log}" + smallest, "/var/log/a": ""}, "/etc/p.yaml", variables())
	if len(problems) != 1 || short(problems[0]) != "1:19: /var/log is a directory | write the path of a file in it" {
		t.Errorf("%v", problems)
	}
}

// TestNobodyIsLetThrough: a listener without a destination is suspicious, but loads.
func TestNobodyIsLetThrough(t *testing.T) {
	warned(t, "listeners: [{name: a, bind: ':1'}]\n",
		"1:13: every client is refused: there is neither a route nor an upstream | write upstream: and the name of one")
}
