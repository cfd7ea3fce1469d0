package config_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/penstock/penstock/proxy/config"
	clients "github.com/penstock/penstock/proxy/internal/source"
)

// TestSourceRules: each list of sources takes every kind of rule, in each way to write it,
// and is written as it was read.
func TestSourceRules(t *testing.T) {
	const rules = `[10.0.0.0/8, "::1", unix, unix:uid=0, "unix:gid=4294967294", all]`
	want := []config.Rule{
		clients.Prefix(netip.MustParsePrefix("10.0.0.0/8")), clients.Prefix(netip.MustParsePrefix("::1/128")),
		clients.UnixClients(), clients.UnixUser(0), clients.UnixGroup(1<<32 - 2), clients.All(),
	}
	text := strings.ReplaceAll(`
listeners:
- {name: a, bind: ["unix:/s", ":1"], allow: RULES, deny: RULES, accept_proxy: {from: RULES}, routes: [{match: {source: RULES}, upstream: u}]}
upstreams: [{name: u, endpoints: ["h:1"]}]
`, "RULES", rules)
	cfg := load(t, text)
	again := load(t, string(cfg.YAML()))
	for _, c := range []*config.Config{cfg, again} {
		ln := c.Listeners[0]
		for name, got := range map[string][]config.Rule{
			"allow": ln.Allow, "deny": ln.Deny, "from": ln.AcceptProxy.From, "source": ln.Routes[0].Match.Source,
		} {
			if !slices.Equal(got, want) {
				t.Errorf("%s is %v, want %v", name, got, want)
			}
		}
	}
	if d := config.Diff(cfg, again); len(d) > 0 {
		t.Errorf("it differs: %v", d)
	}
}

// TestBadSourceRules: a source that names no clients is reported with a fix.
func TestBadSourceRules(t *testing.T) {
	const unix = " | write unix for all clients of unix sockets, unix:uid=1000 or unix:gid=1000 for some"
	for rule, want := range map[string]string{
		"any":                 `"any" is not an address or a CIDR | write 10.0.0.0/8, 2001:db8::/32, one address, unix or all`,
		"ALL":                 `"ALL" is not an address or a CIDR | write 10.0.0.0/8, 2001:db8::/32, one address, unix or all`,
		"uid=1000":            `"uid=1000" is not an address or a CIDR | write unix:uid=1000`,
		"unix:":               `"unix:" names no clients` + unix,
		"unix:/run/s":         `"unix:/run/s" names no clients` + unix,
		"unix:pid=1":          `"unix:pid=1" names no clients` + unix,
		"unix:uid":            `"" is not the number of a user or a group | write a number, as id(1) prints it, such as unix:uid=1000`,
		"unix:uid=root":       `"root" is not the number of a user or a group | write a number, as id(1) prints it, such as unix:uid=1000`,
		"unix:gid=-1":         `"-1" is not the number of a user or a group | write a number, as id(1) prints it, such as unix:gid=1000`,
		"unix:gid=4294967295": `"4294967295" is not the number of a user or a group | write a number, as id(1) prints it, such as unix:gid=1000`,
		"unix,all":            `"unix,all" names no clients` + unix,
	} {
		told(t, config.Tree{}, listener("allow: ['"+rule+"']"), []string{"1:56: " + want})
	}
}

// TestSourceWarnings: lists that probably forget some clients are reported, and nothing else.
func TestSourceWarnings(t *testing.T) {
	for _, x := range []struct{ bind, rest, want string }{
		{"unix:@a", "limits: {per_source: 1}", ""},
		{"unix:@a", "allow: [10.0.0.0/8]", "2:39: all clients of unix:@a are refused: allow has no unix | write unix in it, or unix:uid=1000 for a user, or leave the socket out"},
		{"unix:@a', ':1", "allow: [10.0.0.0/8], deny: [unix:uid=0]", "2:45: all clients of unix:@a are refused: allow has no unix | write unix in it, or unix:uid=1000 for a user, or leave the socket out"},
		{"unix:@a", "allow: [10.0.0.0/8, unix:gid=1]", ""},
		{"unix:@a", "allow: [all]", ""},
		{"unix:@a", "allow: [10.0.0.0/8], accept_proxy: {}", ""},
		{"unix:@a", "allow: [10.0.0.0/8], accept_proxy: {from: [unix:uid=0]}", ""},
		{"unix:@a", "accept_proxy: {from: [10.0.0.0/8]}", "2:53: no PROXY header is read from clients of unix:@a: from has no unix | write unix in it if they send one"},
		{"unix:@a", "deny: [0.0.0.0/0, '::/0']", "2:38: clients of unix:@a come in: deny has no unix | write deny: [all]"},
		{"unix:@a", "deny: [0.0.0.0/0]", ""},
		{"unix:@a", "deny: [0.0.0.0/0, '::/0', unix]", ""},
		{"unix:@a", "deny: [all]", ""},
		{":1", "allow: [10.0.0.0/8], deny: [unix]", "2:55: unix matches no client: the listener a has no unix socket | leave it out, or bind a unix socket"},
		{":1", "accept_proxy: {from: [10.0.0.0/8, unix:uid=1]}", "2:61: unix:uid=1 matches no client: the listener a has no unix socket | leave it out, or bind a unix socket"},
		{":1", "routes: [{match: {source: [unix:gid=1]}, upstream: u}]", "2:54: unix:gid=1 matches no client: the listener a has no unix socket | leave it out, or bind a unix socket"},
		{":1", "allow: [all]", ""},
		{"systemd:x", "allow: [10.0.0.0/8, unix]", ""},
		{":1", "deny: ['::/0']", "2:33: clients of IPv4 come in: ::/0 is IPv6 alone | write all, or 0.0.0.0/0 as well"},
		{":1", "deny: ['::/0', 10.0.0.0/8]", ""},
		{":1", "deny: ['::/0'], allow: [10.0.0.0/8]", ""},
		{"[::]:1", "deny: ['::/0']", ""},
		{"0.0.0.0:1", "allow: ['::/0']", "2:41: all clients of IPv4 are refused: ::/0 is IPv6 alone | write all, or 0.0.0.0/0 as well"},
		{":1", "allow: ['::/0', 10.0.0.0/8]", ""},
		{":1", "allow: ['::/0', all]", ""},
	} {
		text := "listeners:\n- {name: a, bind: ['" + x.bind + "'], " + x.rest + ", upstream: u}\nupstreams: [{name: u, endpoints: ['h:1']}]\n"
		if x.want == "" {
			warned(t, text)
		} else {
			warned(t, text, x.want)
		}
	}
}
