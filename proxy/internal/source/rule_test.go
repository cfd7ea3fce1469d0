package source_test

import (
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/penstock/penstock/proxy/internal/source"
)

func network(s string) source.Rule { return source.Prefix(netip.MustParsePrefix(s)) }

func tcp(s string) source.Source { return at(netip.MustParseAddr(s)) }

func unix(uid, gid uint32) source.Source {
	return source.Unix(source.Credentials{UID: uid, GID: gid, PID: 77})
}

// kinds are clients of every kind.
var kinds = map[string]source.Source{
	"IPv4":        tcp("10.1.2.3"),
	"IPv4 mapped": tcp("::ffff:10.1.2.3"),
	"other IPv4":  tcp("192.0.2.1"),
	"IPv6":        tcp("2001:db8::1"),
	"link-local":  tcp("fe80::1%eth0"),
	"root":        unix(0, 0),
	"user":        unix(1000, 1000),
	"member":      unix(1001, 1000),
	"unknown":     {},
	"no address":  source.TCP(netip.AddrPort{}),
}

// TestRules holds each rule against each kind of client; the set of it returns the same.
func TestRules(t *testing.T) {
	for rule, names := range map[source.Rule][]string{
		source.All():                  {"IPv4", "IPv4 mapped", "other IPv4", "IPv6", "link-local", "root", "user", "member"},
		network("10.0.0.0/8"):         {"IPv4", "IPv4 mapped"},
		network("0.0.0.0/0"):          {"IPv4", "IPv4 mapped", "other IPv4"},
		network("::/0"):               {"IPv6", "link-local"},
		network("fe80::/10"):          {"link-local"},
		source.UnixClients():          {"root", "user", "member"},
		source.UnixUser(0):            {"root"},
		source.UnixUser(1000):         {"user"},
		source.UnixGroup(1000):        {"user", "member"},
		source.UnixUser(65534):        nil,
		{}:                            nil,
		network("10.1.2.4/32"):        nil,
		source.Prefix(netip.Prefix{}): nil,
	} {
		set := source.NewSet([]source.Rule{rule, rule})
		for name, of := range kinds {
			want := slices.Contains(names, name)
			if rule.Contains(of) != want || set.Contains(of) != want {
				t.Errorf("%v is for %s: %v, and the set of it %v, want %v", rule, name, rule.Contains(of), set.Contains(of), want)
			}
		}
		if set.Len() != 2 {
			t.Errorf("it is made of %d", set.Len())
		}
	}
}

func TestCovers(t *testing.T) {
	for _, x := range []struct {
		wide, narrow source.Rule
		want         bool
	}{
		{source.All(), network("::/0"), true},
		{source.All(), source.UnixUser(1), true},
		{network("::/0"), source.All(), false},
		{network("10.0.0.0/8"), network("10.1.0.0/16"), true},
		{network("10.1.0.0/16"), network("10.0.0.0/8"), false},
		{network("::/0"), network("10.0.0.0/8"), false},
		{source.UnixClients(), source.UnixGroup(1), true},
		{source.UnixClients(), network("10.0.0.0/8"), false},
		{source.UnixUser(1), source.UnixClients(), false},
		{source.UnixUser(1), source.UnixUser(1), true},
		{source.UnixUser(1), source.UnixGroup(1), false},
		{network("10.0.0.0/8"), source.UnixUser(1), false},
	} {
		if x.wide.Covers(x.narrow) != x.want {
			t.Errorf("%v covers %v: %v", x.wide, x.narrow, !x.want)
		}
	}
}

var anyRule = rapid.OneOf(
	rapid.SampledFrom([]source.Rule{{}, source.All(), source.UnixClients(), network("10.0.0.0/8"), network("10.1.0.0/16"), network("::/0"), network("fe80::/10")}),
	rapid.Map(rapid.Uint32Range(0, 3), source.UnixUser),
	rapid.Map(rapid.Uint32Range(0, 3), source.UnixGroup),
)

var anySource = rapid.OneOf(
	rapid.SampledFrom([]source.Source{{}, tcp("10.1.2.3"), tcp("10.2.2.3"), tcp("::ffff:10.1.2.3"), tcp("fe80::1"), tcp("2001:db8::1"), tcp("1.1.1.1")}),
	rapid.Custom(func(t *rapid.T) source.Source {
		return unix(rapid.Uint32Range(0, 3).Draw(t, "uid"), rapid.Uint32Range(0, 3).Draw(t, "gid"))
	}),
)

// TestSetAgrees: a set returns the same as its rules one after the other. A rule that covers
// another one is for all of its clients.
func TestSetAgrees(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rules := rapid.SliceOfN(anyRule, 0, 5).Draw(t, "rules")
		of := anySource.Draw(t, "source")
		want := slices.ContainsFunc(rules, func(r source.Rule) bool { return r.Contains(of) })
		if got := source.NewSet(rules).Contains(of); got != want {
			t.Errorf("%v is in %v: %v", of, rules, got)
		}
		if !of.Known() && want {
			t.Errorf("a rule of %v is for a client that is not known", rules)
		}
		a, b := anyRule.Draw(t, "a"), anyRule.Draw(t, "b")
		if a.Covers(b) && b.Contains(of) && !a.Contains(of) {
			t.Errorf("%v covers %v, but not %v", a, b, of)
		}
	})
}

func TestStrings(t *testing.T) {
	for want, of := range map[string]interface{ String() string }{
		"10.1.2.3:1":                    tcp("::ffff:10.1.2.3"),
		"[2001:db8::1]:1":               tcp("2001:db8::1"),
		"unix:uid=1000,gid=1001,pid=77": unix(1000, 1001),
		"unknown":                       source.Source{},
		"all":                           source.All(),
		"10.0.0.0/8":                    network("::ffff:10.0.0.0/104"),
		"fe80::/10":                     network("fe80::1/10"),
		"unix":                          source.UnixClients(),
		"unix:uid=4294967294":           source.UnixUser(1<<32 - 2),
		"unix:gid=0":                    source.UnixGroup(0),
		"none":                          source.Rule{},
	} {
		if got := of.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestAllocations(t *testing.T) {
	set := source.NewSet([]source.Rule{network("10.0.0.0/8"), network("fe80::/10"), source.UnixUser(1), source.UnixGroup(2)})
	for name, of := range kinds {
		if n := testing.AllocsPerRun(100, func() { set.Contains(of); _ = source.TCP(of.AddrPort()) }); n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
