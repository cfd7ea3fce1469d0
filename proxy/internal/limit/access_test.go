package limit_test

import (
	"net/netip"
	"testing"

	"github.com/penstock/penstock/proxy/internal/limit"
	"github.com/penstock/penstock/proxy/internal/source"
)

func TestAccess(t *testing.T) {
	network := func(s string) source.Rule { return source.Prefix(netip.MustParsePrefix(s)) }
	tcp := func(s string) source.Source { return at(netip.MustParseAddr(s)) }
	user := source.Unix(source.Credentials{UID: 7})
	some := limit.Access{
		Allow: source.NewSet([]source.Rule{network("10.0.0.0/8")}),
		Deny:  source.NewSet([]source.Rule{network("10.9.0.0/16")}),
	}
	users := limit.Access{
		Allow: source.NewSet([]source.Rule{source.UnixClients()}),
		Deny:  source.NewSet([]source.Rule{source.UnixUser(8)}),
	}
	but := limit.Access{Deny: source.NewSet([]source.Rule{network("::1/128")})}
	nobody := limit.Access{Deny: source.NewSet([]source.Rule{source.All()})}
	for name, x := range map[string]struct {
		access *limit.Access
		of     source.Source
		want   error
	}{
		"no rules":                 {&limit.Access{}, tcp("1.2.3.4"), nil},
		"no rules, unix":           {&limit.Access{}, user, nil},
		"no rules, unknown":        {&limit.Access{}, source.Source{}, source.ErrUnknown},
		"allowed":                  {&some, tcp("10.1.1.1"), nil},
		"allowed and denied":       {&some, tcp("10.9.1.1"), limit.ErrDenied},
		"not allowed":              {&some, tcp("11.1.1.1"), limit.ErrDenied},
		"not allowed, IPv6":        {&some, tcp("::1"), limit.ErrDenied},
		"not allowed, unix":        {&some, user, limit.ErrDenied},
		"allow, unknown":           {&some, source.Source{}, source.ErrUnknown},
		"allowed, unix":            {&users, user, nil},
		"allowed and denied, unix": {&users, source.Unix(source.Credentials{UID: 8}), limit.ErrDenied},
		"not allowed beside unix":  {&users, tcp("10.1.1.1"), limit.ErrDenied},
		"denied":                   {&but, tcp("::1"), limit.ErrDenied},
		"not denied":               {&but, tcp("::2"), nil},
		"not denied, unix":         {&but, user, nil},
		"deny, unknown":            {&but, source.Source{}, source.ErrUnknown},
		"all denied":               {&nobody, tcp("::2"), limit.ErrDenied},
		"all denied, unix":         {&nobody, user, limit.ErrDenied},
		"all denied, and unknown":  {&nobody, source.Source{}, source.ErrUnknown},
	} {
		if err := x.access.Check(x.of); err != x.want {
			t.Errorf("%s: %v, want %v", name, err, x.want)
		}
	}
	if n := testing.AllocsPerRun(100, func() { _ = some.Check(user); _ = users.Check(user) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
