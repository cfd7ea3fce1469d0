package health_test

import (
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/internal/health"
)

// TestCausesNameTheLastFailure: whatever comes between that and the verdict, and with the
// system's text.
func TestCausesNameTheLastFailure(t *testing.T) {
	k, c := idle(0)
	o := health.NewOutlierDetector(k, &health.OutlierConfig{
		FailurePercentage: 50, Window: time.Second, MinVolume: 4, BaseEjectionTime: time.Second, MaxEjectionTime: time.Second, MaxEjected: 1,
	})
	row := health.NewOutlierDetector(k, &health.OutlierConfig{
		ConsecutiveFailures: 2, BaseEjectionTime: time.Second, MaxEjectionTime: time.Second, MaxEjected: 1,
	}).Add("c", new(target))
	m := o.Add("a", new(target))
	b := health.NewBreaker(k, "b", nil, &health.BreakerConfig{
		FailurePercentage: 50, Window: time.Second, MinVolume: 4, Open: time.Second, TrialConnections: 1,
	})
	for range 2 {
		m.SetCause(syscall.ECONNREFUSED.Error())
		m.Report(health.ConnectFailed, c.Now())
		m.Reached(c.Now()) // in the second iteration the fourth, of MinVolume 4
		m.Report(health.OK, c.Now())
		row.SetCause(syscall.ECONNREFUSED.Error()) // of one before
		row.Report(health.HungUp, c.Now())
		b.Reached()
		b.SetCause(syscall.EHOSTUNREACH.Error())
		b.Report(0, health.ConnectFailed, c.Now())
	}
	c.advance(time.Second)
	k.Step()
	p, _ := b.Begin()
	b.SetCause("")
	b.Report(p, health.ConnectFailed, c.Now())
	c.advance(time.Second)
	k.Step()
	p, _ = b.Begin()
	b.SetCause(syscall.ECONNREFUSED.Error())
	b.Report(p, health.ConnectFailed, c.Now())
	var causes []string
	for _, told := range k.Told() {
		if told.Bad {
			causes = append(causes, told.Subject+": "+told.Cause)
		}
	}
	want := []string{
		"c: 2 failures in a row, the last: ended before its first byte; for 1s",
		"a: 2 of 4 connections failed, the last: cannot be connected to: connection refused; for 1s",
		"b: 2 of 4 connections failed, the last: cannot be connected to: no route to host",
		"b: a trial connection was not made",
		"b: a trial connection was not made: connection refused",
	}
	slices.Sort(causes)
	slices.Sort(want)
	if !slices.Equal(causes, want) {
		t.Errorf("reported %q, want %q", causes, want)
	}
}
