package limit_test

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/penstock/penstock/proxy/internal/limit"
	"github.com/penstock/penstock/proxy/internal/source"
)

// TestDenials: a denial is of a listener, or of all, until the list is another one.
func TestDenials(t *testing.T) {
	from := func(at string) source.Source { return source.TCP(netip.MustParseAddrPort(at + ":1")) }
	rule := func(text string) source.Rule {
		r, err := source.ParseRule(text)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	var d limit.Denials
	check := func(listener, at string, want error) {
		t.Helper()
		if err := d.Check(listener, from(at)); !errors.Is(err, want) || (err == nil) != (want == nil) {
			t.Errorf("%s at %s: %v, want %v", at, listener, err, want)
		}
	}
	check("web", "10.0.0.7", nil)
	if d.Any() || (*limit.Denials)(nil).Any() || d.Check("web", source.Source{}) != nil {
		t.Error("no denial denies something")
	}
	d.Set([]limit.Denial{{Source: rule("10.0.0.0/8")}, {Source: rule("192.0.2.1"), Listener: "web"}, {Source: rule("unix:uid=7"), Listener: "web"}})
	check("web", "10.0.0.7", limit.ErrDeniedNow)
	check("api", "10.0.0.7", limit.ErrDeniedNow)
	check("web", "192.0.2.1", limit.ErrDeniedNow)
	check("api", "192.0.2.1", nil)
	check("web", "192.0.2.2", nil)
	if err := d.Check("web", source.Unix(source.Credentials{UID: 7})); !errors.Is(err, limit.ErrDeniedNow) {
		t.Error(err)
	}
	if err := d.Check("web", source.Source{}); !errors.Is(err, source.ErrUnknown) {
		t.Error(err)
	}
	d.Set(nil)
	check("web", "10.0.0.7", nil)
}
