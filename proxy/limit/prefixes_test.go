package limit_test

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/penstock/penstock/proxy/limit"
)

func prefixes(list ...string) *limit.Prefixes {
	parsed := make([]netip.Prefix, len(list))
	for i, s := range list {
		parsed[i] = netip.MustParsePrefix(s)
	}
	return limit.NewPrefixes(parsed)
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
		{[]string{"10.1.2.3/8"}, []string{"10.0.0.0"}, nil}, // what is beyond the length does not matter
		{[]string{"0.0.0.0/0"}, []string{"0.0.0.0", "255.255.255.255", "::ffff:1.2.3.4"}, []string{"::", "2001:db8::1"}},
		{[]string{"::/0"}, []string{"::", "ffff::", "1.2.3.4", "0.0.0.0", "::ffff:1.2.3.4"}, nil},
		{[]string{"::ffff:10.0.0.0/104"}, []string{"10.1.2.3", "::ffff:10.1.2.3"}, []string{"11.0.0.0"}},
		{[]string{"::ffff:0:0/96"}, []string{"10.1.2.3"}, []string{"::1"}},
		{[]string{"::/90"}, []string{"::1", "::fffe:1"}, []string{"1.2.3.4"}},
		{[]string{"::ffff:0:0/90"}, []string{"1.2.3.4"}, []string{"::1"}},
		{
			[]string{"2001:db8::/32", "2001:db8:1::/64"},
			[]string{"2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", "2001:db8::1%eth0"},
			[]string{"2001:db7:ffff::", "2001:db9::"},
		},
		{[]string{"1.2.3.4/32", "2001:db8::1/128"}, []string{"1.2.3.4", "2001:db8::1"}, []string{"1.2.3.5", "1.2.3.3", "2001:db8::2", "2001:db8::"}},
		{[]string{"fe80::/63"}, []string{"fe80:0:0:1:ffff::"}, []string{"fe80:0:0:2::"}},
	} {
		p := prefixes(c.of...)
		for _, s := range c.in {
			if !p.Contains(netip.MustParseAddr(s)) {
				t.Errorf("%v: %s is not in it", c.of, s)
			}
		}
		for _, s := range c.out {
			if p.Contains(netip.MustParseAddr(s)) {
				t.Errorf("%v: %s is in it", c.of, s)
			}
		}
	}
	var none *limit.Prefixes
	if none.Contains(netip.MustParseAddr("::1")) || none.Len() != 0 || prefixes("::/0").Contains(netip.Addr{}) {
		t.Error("something is in the empty set, or nothing in all")
	}
}

// TestPrefixesAgree: it says what looking through the list says.
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
		p := limit.NewPrefixes(list)
		for range 20 {
			a := addr.Draw(t, "asked")
			want := slices.ContainsFunc(list, func(x netip.Prefix) bool { return x.Contains(a) })
			if got := p.Contains(a); got != want {
				t.Fatalf("%v in %v: %v", a, list, got)
			}
		}
	})
}

func TestAccess(t *testing.T) {
	addr := netip.MustParseAddr
	var all limit.Access
	if err := errors.Join(all.Check(addr("1.2.3.4")), all.Check(netip.Addr{})); err != nil {
		t.Error(err)
	}
	some := limit.Access{Allow: prefixes("10.0.0.0/8"), Deny: prefixes("10.9.0.0/16")}
	for s, want := range map[string]error{"10.1.1.1": nil, "10.9.1.1": limit.ErrDenied, "11.1.1.1": limit.ErrDenied, "::1": limit.ErrDenied} {
		if err := some.Check(addr(s)); err != want {
			t.Errorf("%s: %v, want %v", s, err, want)
		}
	}
	if err := some.Check(netip.Addr{}); err != nil {
		t.Errorf("a client of a unix socket: %v", err)
	}
	deny := limit.Access{Deny: prefixes("::1/128")}
	if deny.Check(addr("::1")) == nil || deny.Check(addr("::2")) != nil {
		t.Error("want one denied, all others allowed")
	}
	if n := testing.AllocsPerRun(100, func() { _ = some.Check(addr("10.1.1.1")) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkPrefixes(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	list := make([]netip.Prefix, 10_000)
	for i := range list {
		if i%2 == 0 {
			list[i] = netip.PrefixFrom(any4(r.Uint32()), 16+r.IntN(17))
		} else {
			list[i] = netip.PrefixFrom(any6(r), 32+r.IntN(33))
		}
	}
	p := limit.NewPrefixes(list)
	asked := make([]netip.Addr, 1024)
	for i := range asked {
		if asked[i] = any4(r.Uint32()); i%2 == 0 {
			asked[i] = any6(r)
		}
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		p.Contains(asked[i%len(asked)])
		i++
	}
}
