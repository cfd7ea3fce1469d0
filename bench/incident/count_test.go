package incident

import (
	"slices"
	"testing"
	"time"

	"github.com/penstock/penstock/bench/endpoint"
	"github.com/penstock/penstock/bench/report"
)

func TestCount(t *testing.T) {
	s := Setup{Before: 2 * time.Second, During: 2 * time.Second, After: 500 * time.Millisecond}
	var all []endpoint.Outcome
	for i := range 45 {
		at := time.Duration(i) * 100 * time.Millisecond
		all = append(all, endpoint.Outcome{Began: at, Ended: at + 10*time.Millisecond})
	}
	all[30].Lost = "lost"
	phases, seconds := s.count(all)
	if len(seconds) != 5 || seconds[0].Requests != 10 || seconds[4].Requests != 5 || seconds[3].Failed != 1 {
		t.Errorf("%+v", seconds)
	}
	for i, want := range []int64{19, 21, 5} {
		if f := phases[i]; f.Requests != want || f.Mean < 0.0099 || f.P99 > 0.0101 {
			t.Errorf("phase %d: %+v", i, f)
		}
	}
	if f := phases[1]; f.Failed != 1 || f.Reasons["lost"] != 1 || f.FailedShare() != report.Number(1)/21 {
		t.Errorf("%+v", f)
	}
	if f := figures(nil); f.Mean.Known() || f.P99.Known() || f.FailedShare().Known() {
		t.Errorf("of no requests: %+v", f)
	}
}

func figuresAt(p99 ...report.Number) (all []Figures) {
	for _, n := range p99 {
		all = append(all, Figures{Requests: 10, P99: n})
	}
	return all
}

func TestWhenItWasBack(t *testing.T) {
	trial := &Trial{Before: Figures{P99: 0.01}, Began: 2.001, Ended: 8, Seconds: figuresAt(0.01, 0.01, 1, 0.01, 1, 0.02, 0.059, 0.03, 1, 0.01, 0.01, 0.01)}
	trial.sum(&Setup{Failing: 1})
	if b := trial.Back; b < 2.99 || b > 3 || trial.BackAfter.Known() {
		t.Errorf("back after %v, %v", b, trial.BackAfter)
	}
	trial.Seconds[6].P99 = 1
	if trial.sum(&Setup{Failing: 1}); trial.Back.Known() || trial.BackAfter != 1 {
		t.Errorf("back after %v, %v", trial.Back, trial.BackAfter)
	}
}

func TestKeptAway(t *testing.T) {
	trial := &Trial{Began: 5, Ended: 10, Events: []Event{
		{Seconds: -1, Subject: "x", Bad: true},
		{Seconds: 0.5, Subject: "a", Bad: true},
		{Seconds: 0.7, Subject: "a", Bad: true},
		{Seconds: 0.8, Subject: "c"},
		{Seconds: 1.5, Subject: "b", Bad: true},
		{Seconds: 5.5, Subject: "c", Bad: true},
	}}
	if first, all := trial.keptAway(2); first != 0.5 || all != 1.5 {
		t.Errorf("%v, %v", first, all)
	}
	if _, all := trial.keptAway(3); all.Known() {
		t.Errorf("all at %v", all)
	}
}

// Only circuits that opened count as a breaker's opening, each once, and only during the
// incident.
func TestOpened(t *testing.T) {
	trial := &Trial{Began: 5, Ended: 10, Events: []Event{
		{Seconds: -1, Kind: "circuit", Subject: "x", State: "open"},
		{Seconds: 0.3, Kind: "ejection", Subject: "a", State: "ejected", Bad: true},
		{Seconds: 0.4, Kind: "circuit", Subject: "c", State: "closed"},
		{Seconds: 0.5, Kind: "circuit", Subject: "endpoint shop/e3", State: "open"},
		{Seconds: 0.6, Kind: "circuit", Subject: "endpoint shop/e3", State: "half-open"},
		{Seconds: 0.7, Kind: "circuit", Subject: "endpoint shop/e3", State: "open"},
		{Seconds: 1.5, Kind: "circuit", Subject: "upstream shop", State: "open"},
		{Seconds: 5.5, Kind: "circuit", Subject: "late", State: "open"},
	}}
	trial.sum(&Setup{Failing: 1})
	want := []Opened{{"endpoint shop/e3", 0.5}, {"upstream shop", 1.5}}
	if !slices.Equal(trial.Opened, want) || trial.FirstOpened != 0.5 {
		t.Errorf("%v, first at %v", trial.Opened, trial.FirstOpened)
	}
	trial.Events = trial.Events[:3]
	if trial.sum(&Setup{Failing: 1}); len(trial.Opened) > 0 || trial.FirstOpened.Known() {
		t.Errorf("none opened: %v, first at %v", trial.Opened, trial.FirstOpened)
	}
}

func TestJudge(t *testing.T) {
	of := func(mode string, failed int64, mean report.Number) Trial {
		return Trial{Mode: mode, During: Figures{Requests: 1000, Failed: failed, Mean: mean}}
	}
	r := &Report{Incidents: []Incident{
		{endpoint.Silent, []Trial{of(Off, 32, 0.842), of(Least, 0, 0.1), of(Defaults, 1, 0.1), of(On, 0, 0.2)}},
		{endpoint.Slow, []Trial{of(Off, 0, 1), of(On, 0, 0.1)}},
		{endpoint.Refuse, []Trial{of(Off, 300, 1), of(On, 0, 0.1)}},
	}}
	r.judge()
	want := []report.Verdict{
		report.MustReached, report.MustReached, // defaults: 8.42 and 32
		report.Missed, report.MustReached, // on: 4.21, and one counted as lost
		report.MustReached, report.Unjudged,
	}
	if len(r.Standings) != len(want) {
		t.Fatalf("%+v", r.Standings)
	}
	for i, s := range r.Standings {
		if s.Verdict != want[i] {
			t.Errorf("%+v, want %s", s, want[i])
		}
	}
}
