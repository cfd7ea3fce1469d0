package health_test

import (
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/internal/health"
)

// TestJoin: an endpoint made by NewMonitor is neither judged nor counted for MaxEjected until
// it joins.
func TestJoin(t *testing.T) {
	k, c := idle(0)
	o := health.NewOutlierDetector(k, &health.OutlierConfig{ConsecutiveFailures: 1, BaseEjectionTime: time.Hour, MaxEjectionTime: time.Hour, MaxEjected: 1})
	never, m, e := o.NewMonitor("never", new(target)), o.NewMonitor("m", new(target)), o.Add("e", new(target))
	of := func(want int) {
		t.Helper()
		if _, n := o.Ejected(); n != want {
			t.Errorf("%d are judged, want %d", n, want)
		}
	}
	fail := func(m *health.OutlierMonitor) bool {
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
