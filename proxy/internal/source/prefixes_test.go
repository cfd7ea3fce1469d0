package source_test

import (
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/penstock/penstock/proxy/internal/source"
)

func at(addr netip.Addr) source.Source { return source.TCP(netip.AddrPortFrom(addr, 1)) }

func networks(list ...string) *source.Set {
	var rules []source.Rule
	for _, s := range list {
		rules = append(rules, source.Prefix(netip.MustParsePrefix(s)))
	}
	return source.NewSet(rules)
}

// any4 is an address by number.
func any4(n uint32) netip.Addr {
	return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
}

func TestPrefixes(t *testing.T) {
	for _, c := range []struct {
		of      []string
		in, out []string
	}{
		{nil, nil, []string{"1.2.3.4", "::1"}},
		{
			[]string{"10.0.0.0/8"},
			[]string{"10.0.0.0", "10.255.255.255", "::ffff:10.1.2.3"},
			[]string{"9.255.255.255", "11.0.0.0", "::1", "::10.0.0.0"},
		},
		{[]string{"10.1.2.3/8"}, []string{"10.0.0.0"}, nil}, // bits beyond the length do not matter
		{[]string{"0.0.0.0/0"}, []string{"0.0.0.0", "255.255.255.255", "::ffff:1.2.3.4"}, []string{"::", "2001:db8::1"}},
		{[]string{"::/0"}, []string{"::", "ffff::"}, []string{"1.2.3.4", "0.0.0.0", "::ffff:1.2.3.4"}}, // IPv6 alone, as 0.0.0.0/0 is IPv4
		{[]string{"::ffff:10.0.0.0/104"}, []string{"10.1.2.3", "::ffff:10.1.2.3"}, []string{"11.0.0.0"}},
		{[]string{"::ffff:0:0/96"}, []string{"10.1.2.3"}, []string{"::1"}},
		{[]string{"::/90"}, []string{"::1", "::fffe:1"}, []string{"1.2.3.4"}},
		{[]string{"::ffff:0:0/90"}, []string{"::ffc0:0:1"}, []string{"1.2.3.4", "::1"}},
		{
			[]string{"2001:db8::/32", "2001:db8:1::/64"},
			[]string{"2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", "2001:db8::1%eth0"},
			[]string{"2001:db7:ffff::", "2001:db9::"},
		},
		{[]string{"1.2.3.4/32", "2001:db8::1/128"}, []string{"1.2.3.4", "2001:db8::1"}, []string{"1.2.3.5", "1.2.3.3", "2001:db8::2", "2001:db8::"}},
		{[]string{"fe80::/63"}, []string{"fe80:0:0:1:ffff::"}, []string{"fe80:0:0:2::"}},
	} {
		p := networks(c.of...)
		for _, s := range c.in {
			if !p.Contains(at(netip.MustParseAddr(s))) {
				t.Errorf("%v: %s is not in it", c.of, s)
			}
		}
		for _, s := range c.out {
			if p.Contains(at(netip.MustParseAddr(s))) {
				t.Errorf("%v: %s is in it", c.of, s)
			}
		}
	}
	var none *source.Set
	if none.Contains(at(netip.MustParseAddr("::1"))) || none.Len() != 0 || source.NewSet(nil) != nil {
		t.Error("something is in the empty set")
	}
}

func rules(list []netip.Prefix) *source.Set {
	var rules []source.Rule
	for _, p := range list {
		rules = append(rules, source.Prefix(p))
	}
	return source.NewSet(rules)
}

// TestPrefixesAgree: it returns the same as a search of the list.
func TestPrefixesAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		addr := rapid.Custom(func(t *rapid.T) netip.Addr {
			if rapid.Bool().Draw(t, "four") {
				return any4(rapid.Uint32Range(0x0a000000, 0x0a0000ff).Draw(t, "v4"))
			}
			b := netip.MustParseAddr("2001:db8::").As16()
			b[7], b[8], b[15] = byte(rapid.IntRange(0, 3).Draw(t, "hi")), rapid.Byte().Draw(t, "mid"), rapid.Byte().Draw(t, "lo")
			return netip.AddrFrom16(b)
		})
		list := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) netip.Prefix {
			a := addr.Draw(t, "addr")
			least := 22
			if a.Is6() {
				least = 60
			}
			return netip.PrefixFrom(a, rapid.IntRange(least, a.BitLen()).Draw(t, "bits"))
		}), 0, 20).Draw(t, "list")
		p := rules(list)
		for range 20 {
			a := addr.Draw(t, "asked")
			want := slices.ContainsFunc(list, func(x netip.Prefix) bool { return x.Contains(a) })
			if got := p.Contains(at(a)); got != want {
				t.Fatalf("%v in %v: %v", a, list, got)
			}
		}
	})
}
