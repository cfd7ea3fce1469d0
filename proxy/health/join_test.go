package health_test

import (
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/health"
)

// TestJoin: an endpoint that was made beforehand is none of those that are judged, or of
// whom so many may be ejected, until it joins.
func TestJoin(t *testing.T) {
	k, c := idle(0)
	o := health.NewOutlier(k, &health.OutlierConfig{ConsecutiveFailures: 1, BaseEjectionTime: time.Hour, MaxEjectionTime: time.Hour, MaxEjected: 1})
	never, m, e := o.NewMember("never", new(target)), o.NewMember("m", new(target)), o.Add("e", new(target))
	of := func(want int) {
		t.Helper()
		if _, n := o.Ejected(); n != want {
			t.Errorf("%d are judged, want %d", n, want)
		}
	}
	fail := func(m *health.Member) bool {
		m.Report(health.ConnectFailed, c.Now())
		_, ejected := m.Ejected()
		return ejected
	}
	of(1)
	if fail(m) {
		t.Error("one that has not joined is ejected")
	}
	never.Remove()
	of(1)
	o.Join(m)
	of(2)
	if !fail(m) || !fail(e) {
		t.Error("those that have joined are not ejected")
	}
	m.Remove()
	of(1)
}
