package rolling

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/bench/contestant"
	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/bench/rounds"
)

// setup is a run that takes seconds, with these contestants.
func setup(t *testing.T, names ...string) Setup {
	t.Helper()
	g := process.NewGroup()
	t.Cleanup(g.Close)
	s := Setup{
		Setup:     rounds.Setup{Group: g, Rounds: 1},
		Setting:   contestant.Setting{Program: self, Dir: t.TempDir(), Patience: time.Minute},
		Scenarios: Scenarios(200 * ms), Away: 200 * ms, Rate: 50, Timeout: 500 * ms, Bytes: 100,
	}
	for _, k := range contestant.Balancing(2) {
		if slices.Contains(names, k.Name) {
			s.Kinds = append(s.Kinds, k)
		}
	}
	return s
}

// TestMeasure runs each scenario with Penstock alone. All clients are accounted for, and those of
// an endpoint that does not answer are lost.
func TestMeasure(t *testing.T) {
	t.Parallel()
	s := setup(t, contestant.BalancingName)
	var seen []string
	s.Watch = func(p rounds.Progress) { seen = append(seen, p.Case) }
	r, err := Measure(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(seen, " "); got != "rolling pair brief single refusing resetting mute frozen" || len(r.Standings) != len(seen) {
		t.Errorf("%s; %+v", got, r.Standings)
	}
	for i, res := range r.Scenarios {
		f := res.Cells[0].Total
		length := s.Scenarios[i].Length
		want := int64(length.Seconds() * s.Rate)
		if f == nil || f.Clients < want || f.Clients > want+1 || f.Lost+f.UnderWay >= f.Clients || !(f.Longest > 0) {
			t.Errorf("%s, %v: %+v", res.Scenario, length, f)
		}
		if res.Scenario == "mute" && f.Reasons["timed out"] == 0 {
			t.Errorf("mute: no client timed out: %+v", f)
		}
		if s := r.Standings[i]; s.Verdict != report.Unjudged {
			t.Errorf("without peers: %+v", s)
		}
	}
	text, err := json.Marshal(r)
	for _, key := range []string{`"clients_per_second":50,`, `"scenario":"frozen"`, `"lost_under_way":`, `"longest_seconds":`} {
		if err != nil || !strings.Contains(string(text), key) {
			t.Errorf("no %s in %s, %v", key, text, err)
		}
	}
}

// TestPeers: each peer is started with its endpoints, serves, and manages without one of them.
func TestPeers(t *testing.T) {
	t.Parallel()
	names := []string{contestant.BalancingName, "haproxy", "haproxy-observe", "nginx", "nginx-tuned", contestant.CheckingName, "haproxy-checks"}
	s := setup(t, names...)
	s.Scenarios, _ = Named(s.Scenarios, []string{"refusing"})
	s.Rate, s.Timeout = 20, time.Minute
	r, err := Measure(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	for _, why := range r.Missing {
		if os.Getenv("CI") != "" {
			t.Fatal(why)
		}
		t.Log(why)
	}
	for i, c := range r.Scenarios[0].Cells {
		if f := c.Total; f.Lost > 0 || f.Clients < 10 {
			t.Errorf("%s: %+v\n%s", c.Contestant, f, r.Contestants[i].Config)
		}
	}
	if len(r.Missing) > 0 {
		t.Skipf("without %s", strings.Join(r.Missing, "; "))
	}
	if len(r.Contestants) != len(names) || r.Contestants[1].Version == "" {
		t.Errorf("%+v", r.Contestants)
	}
}

// A contestant that is not installed is left out. It is an error if it was named.
func TestMissing(t *testing.T) {
	s := setup(t, contestant.BalancingName, "nginx")
	s.Setting.Binaries = map[string]string{"nginx": t.TempDir() + "/nginx"}
	s.Scenarios = s.Scenarios[4:5]
	r, err := Measure(t.Context(), s)
	if err != nil || len(r.Contestants) != 1 || len(r.Missing) != 1 || !strings.HasPrefix(r.Missing[0], "nginx: ") {
		t.Errorf("%+v, %v", r.Missing, err)
	}
	s.Named = true
	if _, err := Measure(t.Context(), s); err == nil || !strings.Contains(err.Error(), "nginx") {
		t.Errorf("got %v", err)
	}
}

func TestInterrupted(t *testing.T) {
	s := setup(t, contestant.BalancingName)
	s.Scenarios = append(s.Scenarios[4:5], Scenarios(time.Hour)[0])
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	s.Watch = func(p rounds.Progress) {
		if p.Case == "rolling" {
			time.AfterFunc(300*ms, func() { cancel(why) })
		}
	}
	r, err := Measure(ctx, s)
	if !errors.Is(err, why) || len(r.Scenarios[0].Cells[0].Rounds) != 1 || r.Scenarios[1].Cells[0].Total != nil || len(r.Standings) != 1 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestJudge(t *testing.T) {
	cell := func(name string, lost ...int64) Cell {
		c := Cell{Contestant: name}
		for _, n := range lost {
			c.add(&Figures{Clients: 100, Lost: n, P50: 0.1, P99: 0.1, Longest: report.Number(n)})
		}
		return c
	}
	r := &Report{Scenarios: []Result{
		{Scenario: "a", Cells: []Cell{cell("penstock", 3, 2), cell("haproxy", 4, 4), cell("nginx", 1, 2), cell("haproxy-checks", 0, 0)}},
		{Scenario: "b", Cells: []Cell{cell("penstock", 9), cell("nginx", 4), cell("penstock-checks", 1), cell("haproxy-checks", 0)}},
		{Scenario: "c", Cells: []Cell{cell("penstock", 0), cell("nginx", 0)}},
		{Scenario: "d", Cells: []Cell{cell("penstock"), cell("nginx")}},
	}}
	r.judge()
	want := []Standing{
		{"a", "penstock", 5, "nginx", 3, report.MustReached}, // the difference may be chance
		{"b", "penstock", 9, "nginx", 4, report.Missed},
		{"b", "penstock-checks", 1, "haproxy-checks", 0, report.Missed}, // not next to one that lost none
		{"c", "penstock", 0, "nginx", 0, report.MustReached},
	}
	if !slices.Equal(r.Standings, want) {
		t.Errorf("%+v", r.Standings)
	}
	if total := r.Scenarios[0].Cells[0].Total; total.Clients != 200 || total.Longest != 3 {
		t.Errorf("%+v", total)
	}
}
