package limit_test

import (
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/time/rate"
	"pgregory.net/rapid"

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

func TestConnections(t *testing.T) {
	var c limit.Connections
	c.Set(2)
	for range 2 {
		if !c.Take() {
			t.Fatal("no place among two")
		}
	}
	if c.Take() || !c.Full() || c.InUse() != 2 || c.Max() != 2 {
		t.Fatalf("%d of %d in use", c.InUse(), c.Max())
	}
	if !c.Give() {
		t.Error("a place of a full limit was given back, which frees one")
	}
	if c.Give() {
		t.Error("a place was freed for which no client waits")
	}
	for range 3 {
		c.Add()
	}
	if c.InUse() != 3 || c.Give() {
		t.Error("three of two are in use, and one that leaves has freed a place")
	}
	c.Give()
	c.Give()
	c.Set(0)
	for range 100 {
		if !c.Take() || c.Full() {
			t.Fatal("no limit, and no place")
		}
	}
	c.Set(10) // below the places in use
	if c.Take() || !c.Full() {
		t.Error("a place beyond a lower limit")
	}
	for range 90 {
		c.Give()
	}
	if c.Take() {
		t.Error("10 of 10 are in use, and there is a place")
	}
	if !c.Give() {
		t.Error("9 of 10 are in use, and nothing was freed")
	}
}

// TestConnectionsShared: the places in use never exceed the limit, with many goroutines that take
// and give.
func TestConnectionsShared(t *testing.T) {
	var c limit.Connections
	c.Set(3)
	var now, most atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20_000 {
				if !c.Take() {
					continue
				}
				n := now.Add(1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				now.Add(-1)
				c.Give()
			}
		})
	}
	wg.Wait()
	if most.Load() > 3 || c.InUse() != 0 {
		t.Errorf("%d at once of 3; %d are left", most.Load(), c.InUse())
	}
}

// take spends a connection if the rate allows one.
func take(r *limit.Rate, now int64) bool {
	if r.Until(now) > 0 {
		return false
	}
	r.Spend(now)
	return true
}

// TestRate: at most the burst at once, and then one whenever the rate gives one.
func TestRate(t *testing.T) {
	var r limit.Rate
	r.Set(10)
	now := int64(5e9)
	for range 10 {
		if !take(&r, now) {
			t.Fatal("refused within the burst")
		}
	}
	if take(&r, now) || r.Until(now) != 100*time.Millisecond {
		t.Fatalf("another one in %v, want 100ms", r.Until(now))
	}
	now += 100e6
	if r.Until(now) != 0 || !take(&r, now) || take(&r, now) {
		t.Error("want one after 100 ms")
	}
	r.Spend(now)
	r.Spend(now)
	if left := r.Until(now); left != 300*time.Millisecond {
		t.Errorf("another one in %v after two too many, want 300ms", left)
	}
	now += 1e12
	for range 10 {
		if !take(&r, now) {
			t.Error("refused after a long time")
		}
	}
	if take(&r, now) {
		t.Error("the burst has grown")
	}
	r.Set(0)
	if !take(&r, now) || r.Until(now) != 0 {
		t.Error("refused without a limit")
	}
	var none limit.Rate
	if none.Spend(now); !take(&none, now) {
		t.Error("the zero value refuses")
	}
}

// TestRateAsReference: it decides as golang.org/x/time/rate does.
func TestRateAsReference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		perSecond := rapid.SampledFrom([]float64{0.1, 1, 2, 10, 1000, 1e6}).Draw(t, "rate")
		ref := rate.NewLimiter(rate.Limit(perSecond), max(int(perSecond), 1))
		var r limit.Rate
		r.Set(perSecond)
		now, base := int64(1e12), time.Unix(0, 0)
		for range 200 {
			// Not where a token is just due: the reference counts in floating point.
			now += rapid.SampledFrom([]int64{0, 0, 13, 77_777, 333_333, 7_777_777, 999e6, 21e9}).Draw(t, "pause")
			want, got := ref.AllowN(base.Add(time.Duration(now)), 1), take(&r, now)
			if want != got {
				// One that is off by rounding is due within a moment.
				if r.Until(now) > time.Microsecond && !got {
					t.Fatalf("%v, the reference returns %v; the next in %v", got, want, r.Until(now))
				}
				t.Skip("a token that is due right now")
			}
		}
	})
}

// TestRateGivenBack: a connection that does not count leaves the rate as it was, and gives no
// client more than the rate does.
func TestRateGivenBack(t *testing.T) {
	var r limit.Rate
	r.Set(10)
	now := int64(5e9)
	for range 10 {
		r.Spend(now)
	}
	for range 3 {
		r.Spend(now)
		r.GiveBack(now)
		if left := r.Until(now); left != 100*time.Millisecond {
			t.Fatalf("another one in %v, want 100ms", left)
		}
	}
	now += 1e12
	for range 5 {
		r.GiveBack(now) // long after the time gave them back
	}
	for range 10 {
		if !take(&r, now) {
			t.Error("refused after a long time")
		}
	}
	if take(&r, now) {
		t.Error("the burst has grown")
	}
	r.Set(0)
	r.GiveBack(now)
	var none limit.Rate
	if none.GiveBack(now); !take(&none, now) {
		t.Error("the zero value refuses")
	}
}
