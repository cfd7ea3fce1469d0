package health_test

import (
	"slices"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/internal/health"
)

// TestEjectionsOfWhoIsDownAreNoNews: while checks find an endpoint down, its ejections end and
// begin again, and its breaker is tried, without a line. When it is up again, only the changes
// since the last line are reported.
func TestEjectionsOfWhoIsDownAreNoNews(t *testing.T) {
	k, c := idle(time.Nanosecond)
	o := health.NewOutlierDetector(k, &health.OutlierConfig{ConsecutiveFailures: 1, BaseEjectionTime: time.Second, MaxEjectionTime: time.Second, MaxEjected: 1})
	m := o.Add("a", new(target))
	b := health.NewBreaker(k, "b", nil, &health.BreakerConfig{
		FailurePercentage: 1, Window: time.Second, MinVolume: 1, Open: time.Second, TrialConnections: 1,
	})
	told := func(when string, want ...string) {
		t.Helper()
		var got []string
		for _, tr := range k.Told() {
			got = append(got, tr.Subject+" "+tr.State)
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%s: reported %v, want %v", when, got, want)
		}
	}
	fail := func() {
		c.advance(2 * time.Second)
		k.Step()
		m.Report(health.ConnectFailed, c.Now())
		p, _ := b.Begin()
		b.Report(p, health.ConnectFailed, c.Now())
		if _, out := m.Ejected(); !out || b.State() != health.Open || m.Why() == "" {
			t.Fatalf("ejected %v (%q), the breaker %v", out, m.Why(), b.State())
		}
	}
	down := func(on bool) { m.SetDown(on); b.SetDown(on) }
	well := func() { m.Recovered(); b.Recovered(); down(false) }
	fail()
	told("the first failure", "a ejected", "b open")
	down(true)
	for range 5 {
		fail()
	}
	told("while it is down")
	c.advance(2 * time.Second)
	if k.Step(); m.Ejections() != 6 {
		t.Errorf("%d ejections", m.Ejections())
	}
	well()
	told("when it is back, not ejected by now", "a returned", "b half-open")
	c.advance(time.Second)
	down(true)
	p, _ := b.Begin()
	b.Report(p, health.OK, c.Now())
	fail()
	well()
	told("when it was ejected after it was down, and is back")
	down(true)
	c.advance(time.Second)
	down(false)
	told("when nothing has happened")
	fail()
	told("the next failure", "a ejected", "b open")
}
