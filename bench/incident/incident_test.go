package incident

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/bench/contestant"
	"github.com/penstock/penstock/bench/endpoint"
	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/bench/rounds"
	"github.com/penstock/penstock/bench/standin"
	"github.com/penstock/penstock/internal/testutil/child"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/proxy/config"
)

// childName is the first argument of a test binary that runs as a part, whose name follows, or as
// a load balancer with a file.
const childName = "penstock-incident-test"

func TestMain(m *testing.M) { child.Main(m, childName, run) }

func run(args []string) error {
	switch args[0] {
	case endpoint.Part:
		return endpoint.RunPart(context.Background(), os.Stdin, os.Stdout)
	case endpoint.PartLoad:
		return endpoint.RunLoad(context.Background(), os.Stdin, os.Stdout)
	}
	return standin.Serve(context.Background(), args[1], 10_000)
}

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

func setup(t *testing.T) Setup {
	t.Helper()
	g := process.NewGroup()
	t.Cleanup(g.Close)
	return Setup{
		Setup: rounds.Setup{Group: g, Rounds: 1}, Program: contestant.Program{Path: "/proc/self/exe", Name: childName}, Dir: t.TempDir(),
		Failures: []endpoint.Failure{endpoint.Silent}, Modes: Modes()[:1], Endpoints: 3, Failing: 1, Rate: 100,
		Service: time.Millisecond, Delay: 300 * time.Millisecond, Timeout: 300 * time.Millisecond, FirstByte: 100 * time.Millisecond, Within: 100 * time.Millisecond, Bytes: 100,
		Before: 200 * time.Millisecond, During: 800 * time.Millisecond, After: 300 * time.Millisecond,
	}
}

// TestMeasure: without protection, clients of an endpoint that falls silent wait until they time
// out. Clients of one that refuses are served elsewhere. Neither depends on the machine.
func TestMeasure(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.Failures, s.Modes = Failures, named(t, Off, On)
	var seen int
	s.Watch = func(rounds.Progress) { seen++ }
	r := must.Get(Measure(t.Context(), s))(t)
	if seen != 2*len(Failures) || len(r.Incidents) != len(Failures) || len(r.Standings) != 2*2 {
		t.Errorf("%d trials, %+v", seen, r.Standings)
	}
	for i := range r.Incidents {
		in := &r.Incidents[i]
		for j := range in.Modes {
			checkTrial(t, in, &in.Modes[j])
		}
	}
	text := must.Get(json.Marshal(r))(t)
	for _, key := range []string{`"requests_per_second":100,`, `"failure":"silent"`, `"mode":"on"`, `"mean_seconds":`, `"first_kept_away_seconds":`, `"p99_back_seconds":`, `"reasons":{"timed out":`} {
		if !bytes.Contains(text, []byte(key)) {
			t.Errorf("no %s in %s", key, text)
		}
	}
}

func checkTrial(t *testing.T, in *Incident, m *Trial) {
	t.Helper()
	if n := m.Before.Requests + m.During.Requests + m.After.Requests; n != 130 {
		t.Errorf("%s, %s: %d requests", in.Failure, m.Mode, n)
	}
	if !(m.Began >= 0.2) || !(m.Ended >= 1) || len(m.Seconds) != 2 || !strings.Contains(m.File, "upstream: shop") {
		t.Errorf("%s, %s: %+v", in.Failure, m.Mode, m)
	}
	if m.Mode == Off && len(m.Events) > 0 {
		t.Errorf("%s: %+v", in.Failure, m.Events)
	}
	if m.Mode != Off {
		return
	}
	switch reasons := m.During.Reasons; in.Failure {
	case endpoint.Silent:
		if reasons["timed out"] == 0 || m.During.Max < 0.3 {
			t.Errorf("no client of the silent endpoint timed out: %+v", m.During)
		}
	case endpoint.Refuse:
		// Other endpoints accept, and are tried as the last resort; a client may have been in
		// flight.
		if m.During.Failed > m.During.Requests/15 {
			t.Errorf("clients are refused while endpoints accept: %+v", m.During)
		}
	}
}

// TestBreakerOpens: if no other protection is earlier, a circuit breaker opens. The log reports
// it, and the report has its time.
func TestBreakerOpens(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.During = 6 * time.Second
	m := Mode{Name: "breaker", text: parse(firstByteText + `    health_check: off
    outlier_detection: off
    circuit_breaker: {min_volume: 5}
`)}
	r := must.Get(s.measure(t.Context(), endpoint.Silent, &m))(t)
	if len(r.Opened) == 0 || r.Opened[0].Subject != "endpoint shop/e0" || !(r.FirstOpened > 0) || r.FirstOpened != r.First {
		t.Errorf("%v, first at %v, first kept away at %v; %+v", r.Opened, r.FirstOpened, r.First, r.Events)
	}
}

func named(t *testing.T, names ...string) (all []Mode) {
	t.Helper()
	return slices.DeleteFunc(Modes(), func(m Mode) bool { return !slices.Contains(names, m.Name) })
}

func TestModes(t *testing.T) {
	for _, m := range Modes() {
		path := t.TempDir() + "/f.yaml"
		text := m.File("127.0.0.1:0", []string{"127.0.0.1:1", "127.0.0.1:2"}, 500*time.Millisecond, 200*time.Millisecond)
		must.Do(t, os.WriteFile(path, []byte(text), 0o600))
		cfg, problems := config.Load(path, nil)
		if len(problems) > 0 {
			t.Fatalf("%s: %v", m.Name, problems)
		}
		up := cfg.Upstreams[0]
		if want := map[bool]string{true: "least_conn", false: "round_robin"}[m.Name == Least]; up.Balance != want || up.SlowStart > 0 {
			t.Errorf("%s: %s, slow_start %v: only protection may differ from off", m.Name, up.Balance, up.SlowStart)
		}
		if protected := up.HealthCheck != nil && up.OutlierDetection != nil; protected != (m.Name == Defaults || m.Name == FirstByte || m.Name == On) {
			t.Errorf("%s: %+v", m.Name, up)
		}
	}
}
