package health_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/internal/health"
)

// TestRecoveryIsToldAtOnce: a failure, a recovery and another failure are reported. Later
// transitions are held, and reported in the end with their own time.
func TestRecoveryIsToldAtOnce(t *testing.T) {
	var told []health.Transition
	c := new(clock)
	c.advance(time.Hour)
	k := health.NewScheduler(&health.SchedulerConfig{Now: c.Now, ReportEvery: time.Minute, Report: func(tr health.Transition) { told = append(told, tr) }})
	o := health.NewOutlierDetector(k, &health.OutlierConfig{ConsecutiveFailures: 1, BaseEjectionTime: time.Hour, MaxEjectionTime: time.Hour, MaxEjected: 1})
	m := o.Add("u/a", new(target))
	for range 4 {
		m.Report(health.Silent, c.advance(time.Second))
		c.advance(time.Second)
		m.Recovered()
	}
	last := c.Now()
	c.advance(time.Second)
	k.Close()
	var got []string
	for _, tr := range told {
		got = append(got, fmt.Sprintf("%s %d", tr.State, tr.Suppressed))
	}
	if want := "ejected 0, returned 0, ejected 0, returned 4"; strings.Join(got, ", ") != want {
		t.Fatalf("reported %v, want %s", got, want)
	}
	if at := told[3].Time; at != last {
		t.Errorf("the last one was at %d, and is reported at %d", last, at)
	}
}

// TestWhy checks the cause and the end of ejections and open breakers.
func TestWhy(t *testing.T) {
	k, c := idle(time.Minute)
	o := health.NewOutlierDetector(k, &health.OutlierConfig{ConsecutiveFailures: 1, BaseEjectionTime: time.Second, MaxEjectionTime: time.Second, MaxEjected: 1})
	m := o.Add("u/a", new(target))
	b := health.NewBreaker(k, "u", nil, &health.BreakerConfig{
		FailurePercentage: 1, Window: time.Second, MinVolume: 1, Open: time.Minute, TrialConnections: 1,
	})
	says := func(when, ejected, open string, end int64) {
		t.Helper()
		cause, until := b.Why()
		if m.Why() != ejected || cause != open || until != end {
			t.Errorf("%s: %q, and %q until %d", when, m.Why(), cause, until)
		}
	}
	says("at first", "", "", 0)
	for range 5 { // more often than is reported at once
		m.SetCause(syscall.ECONNREFUSED.Error())
		b.SetCause(syscall.ECONNREFUSED.Error())
		m.Report(health.ConnectFailed, c.Now())
		b.Report(0, health.ConnectFailed, c.Now())
		says("after a failure", "1 failure, the last: cannot be connected to: connection refused; for 1s",
			"1 of 1 connections failed, the last: cannot be connected to: connection refused", c.Now()+int64(time.Minute))
		m.Recovered()
		b.Recovered()
		says("after a check", "", "an endpoint is healthy again", 0)
		p, _ := b.Begin()
		b.Reached()
		b.Report(p, health.OK, c.Now())
		b.End(true)
		says("after a trial", "", "", 0)
	}
}
