package bench_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/penstock/penstock/bench"
	"github.com/penstock/penstock/bench/contestant"
	"github.com/penstock/penstock/bench/load"
	"github.com/penstock/penstock/bench/observed"
	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/internal/testutil/privilege"
)

// few is a small measurement of idle sessions.
func few(t *testing.T, rounds int) *bench.Sessions {
	return &bench.Sessions{
		Program: program(faultNone), Sessions: 60, Rounds: rounds, Quiet: 20 * time.Millisecond,
		Talk: load.Talk{Connections: 5, Size: 1 << 10, Duration: 60 * time.Millisecond},
		Contestants: []*contestant.Kind{
			contestant.Observed(observed.Goroutines, "two goroutines", 100),
			contestant.Observed(observed.Penstock, "Penstock", 100, "GOGC=50"),
			kind(t, "io.Copy"), // it cannot be queried
		},
		Watch: func(bench.SessionsStep) {},
	}
}

func TestSessions(t *testing.T) { fewSessions(t) }

func TestSessionsOfAnOrdinaryUser(t *testing.T) {
	if privilege.Ordinary(t) {
		fewSessions(t)
	}
}

func fewSessions(t *testing.T) {
	s, out := few(t, 2), new(bench.SessionsReport)
	var order []string
	s.Watch = func(step bench.SessionsStep) {
		if step.Figures != nil {
			order = append(order, step.Contestant)
		}
	}
	if err := s.Do(t.Context(), out); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"goroutines", "penstock", "io.Copy", "io.Copy", "penstock", "goroutines"}, order); diff != "" {
		t.Errorf("order of the trials:\n%s", diff)
	}
	if out.Sessions != 60 || out.Asked != 60 || out.Talking != 5 || out.Limit.Allows < 60 || out.Limit.What == "" {
		t.Errorf("%+v", out)
	}
	for i, r := range out.Rows {
		if len(r.Trials) != 2 || r.Median == nil || (r.Ratio == nil) != (i == 0) {
			t.Fatalf("%s: %+v", r.Contestant, r)
		}
		for _, f := range r.Trials {
			checkSession(t, r.Contestant, &f)
		}
	}
	if d := out.Rows[1].Ratio.Descriptors; !(d > 0.5 && d < 2) {
		t.Errorf("the ratio of descriptors is %v", d)
	}
	if text, err := json.Marshal(out); err != nil || !strings.Contains(string(text), `"seconds_per_message":`) {
		t.Errorf("%s, %v", text, err)
	}
}

// checkSession checks the figures of a trial.
func checkSession(t *testing.T, who string, f *bench.SessionFigures) {
	t.Helper()
	if !(f.Message > 0) || !(f.P50 > 0) || f.P99 < f.P50 || !(f.CollectP99 > 0) || !(f.CPU >= 0) || !(f.Descriptors >= 2) {
		t.Errorf("%s: %+v", who, f)
	}
	switch asked := who != "io.Copy"; {
	case asked != f.Goroutines.Known() || asked != f.TalkPause.Known() || asked != f.OpenPause.Known():
		t.Errorf("%s: %+v", who, f)
	case asked && (!(f.Collections >= 1) || !(f.TalkPause > 0)):
		t.Errorf("%s: there was no collection: %+v", who, f)
	case who == string(observed.Goroutines) && !(f.Goroutines >= 2):
		t.Errorf("%s: %v goroutines for a session", who, f.Goroutines)
	}
}

// The report has the results until the end of ctx.
func TestSessionsThatAreInterrupted(t *testing.T) {
	s, out := few(t, 1000), new(bench.SessionsReport)
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	s.Watch = func(step bench.SessionsStep) {
		if step.Figures != nil && step.Contestant == "penstock" {
			cancel(enough)
		}
	}
	if err := s.Do(ctx, out); !errors.Is(err, enough) {
		t.Errorf("got %v", err)
	}
	if out.Rows[0].Median == nil || out.Rows[1].Ratio == nil || out.Rows[2].Median != nil {
		t.Errorf("%+v", out.Rows)
	}
}

// If more sessions are wanted than the machine allows, the number is lowered and the limit is
// named. They are not opened.
func TestTheLimitOfSessionsIsNamed(t *testing.T) {
	s, out := few(t, 0), new(bench.SessionsReport) // no rounds
	s.Sessions, s.Talk.Connections = 1<<30, 1<<29
	if err := s.Do(t.Context(), out); err != nil {
		t.Fatal(err)
	}
	if out.Sessions != out.Limit.Allows || out.Sessions >= out.Asked || out.Sessions < 1 || out.Talking != (out.Sessions+1)/2 {
		t.Errorf("%d sessions of %d, %d talk: %+v", out.Sessions, out.Asked, out.Talking, out.Limit)
	}
	text := out.Limit.String()
	for _, want := range []string{out.Limit.What, out.Limit.Mend, report.Exact(int64(out.Limit.Allows))} {
		if want == "" || !strings.Contains(text, want) {
			t.Errorf("%q lacks %q", text, want)
		}
	}
}

func TestObservedTakesItsArguments(t *testing.T) {
	for _, args := range [][]string{nil, {"penstock", "127.0.0.1:1"}, {"penstock", "127.0.0.1:1", "many"}, {"penstock", "127.0.0.1:1", "0"}, {"threads", "127.0.0.1:1", "1"}} {
		if err := bench.RunPart(t.Context(), contestant.PartObserved, args, strings.NewReader(""), new(strings.Builder)); err == nil {
			t.Errorf("%q: no error", args)
		}
	}
}
