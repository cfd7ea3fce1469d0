package claims_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/bench/claims"
	"github.com/penstock/penstock/bench/incident"
	"github.com/penstock/penstock/bench/reload"
	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/bench/switches"
)

var (
	switchesFile = flag.String("switches", "", "record what penstock-bench switches --json wrote to this `file`")
	reloadFile   = flag.String("reload", "", "record what penstock-bench reload --json wrote to this `file`")
	tracesFile   = flag.String("traces", "", "record what BenchmarkTracesPaired -figures wrote to this `file`")
	incidentFile = flag.String("incident", "", "record what penstock-bench incident --json wrote to this `file`")
)

// apart holds the results of commands other than bench claims, for the page.
const apart = "recorded_apart.json"

// apartIDs are the rows of apart, in their order.
var apartIDs = []string{"ten-thousand-connections", "configuration", "incident-silent", "incident-slow", "traces"}

// recordApart stores the runs that flags name in apart, in place of its figures of these rows.
func recordApart(t *testing.T) {
	t.Helper()
	rec := readRecord(t, apart)
	changed := false
	for _, run := range []struct {
		file string
		read func(t *testing.T, text []byte) []claims.Result
	}{{*switchesFile, switchesResults}, {*reloadFile, reloadResults}, {*incidentFile, incidentResults}, {*tracesFile, tracesResults}} {
		if run.file == "" {
			continue
		}
		text, err := os.ReadFile(run.file)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range run.read(t, text) {
			rec.Results = slices.DeleteFunc(rec.Results, func(old claims.Result) bool { return old.ID == r.ID })
			rec.Results = append(rec.Results, r)
		}
		rec.Date, rec.Machine = machineOf(t, text)
		changed = true
	}
	if !changed {
		return
	}
	slices.SortFunc(rec.Results, func(a, b claims.Result) int {
		return slices.Index(apartIDs, a.ID) - slices.Index(apartIDs, b.ID)
	})
	var b strings.Builder
	if err := rec.Write(&b); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(apart, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// machineOf returns the start time of a run, and its kernel.
func machineOf(t *testing.T, text []byte) (date, kernel string) {
	t.Helper()
	var run struct {
		Began   time.Time
		Machine report.Machine
	}
	if err := json.Unmarshal(text, &run); err != nil {
		t.Fatal(err)
	}
	kernel, _, _ = strings.Cut(run.Machine.Kernel, "-")
	return run.Began.Format(time.DateOnly), kernel
}

// switchesResults returns the results of the last group of a run of bench switches.
func switchesResults(t *testing.T, text []byte) []claims.Result {
	t.Helper()
	var run switches.Report
	if err := json.Unmarshal(text, &run); err != nil || len(run.Groups) == 0 {
		t.Fatalf("that is not the JSON of bench switches: %d groups, %v", len(run.Groups), err)
	}
	g := &run.Groups[len(run.Groups)-1]
	r := claims.Result{ID: "ten-thousand-connections", Figures: []claims.Figure{
		{Name: "connections", Unit: claims.Exact, Value: float64(g.Connections)},
	}}
	for _, row := range g.Rows {
		if row.Median == nil {
			continue
		}
		r.Figures = append(r.Figures, figuresOf(row.Server, []claims.Figure{
			{Name: "requests", Unit: claims.Rate, Value: float64(row.Median.RequestsPerSecond)},
			{Name: "system calls", Unit: claims.Rate, Value: float64(row.CallsPerSecond)},
			{Name: "in a request", Unit: claims.Number, Value: float64(row.CallsPerRequest)},
			{Name: "mean", Unit: claims.Seconds, Value: float64(row.Median.Mean)},
			{Name: "p99", Unit: claims.Seconds, Value: float64(row.Median.P99)},
		})...)
	}
	return []claims.Result{r}
}

// reloadResults returns the slowest kind of reload of a run of bench reload, and the number of
// clients lost by all of its reloads.
func reloadResults(t *testing.T, text []byte) []claims.Result {
	t.Helper()
	var run reload.Report
	if err := json.Unmarshal(text, &run); err != nil || len(run.Rows) == 0 || run.Steady == nil || run.Steady.Clients == nil {
		t.Fatalf("that is not the JSON of a whole bench reload: %d rows, %v", len(run.Rows), err)
	}
	r := claims.Result{ID: "configuration", Figures: []claims.Figure{
		{Name: "listeners", Unit: claims.Exact, Value: float64(run.Listeners)},
		{Name: "endpoints", Unit: claims.Exact, Value: float64(run.Endpoints)},
	}}
	slowest := slices.MaxFunc(run.Rows, func(a, b reload.Row) int {
		return int((a.Median.First - b.Median.First) * 1e9)
	})
	c := run.Steady.Clients
	r.Figures = append(r.Figures,
		claims.Figure{Name: "in force (median of the slowest kind of change)", Unit: claims.Seconds, Value: float64(slowest.Median.First)},
		claims.Figure{Name: "the worst", Unit: claims.Seconds, Value: float64(slowest.Worst.First)},
		claims.Figure{Name: "reloads in a row", Unit: claims.Exact, Value: float64(run.Steady.Reloads)},
		claims.Figure{Name: "connections that these cut", Unit: claims.Exact, Value: float64(c.Closed + c.Failed)},
		claims.Figure{Name: "of", Unit: claims.Exact, Value: float64(int64(c.Idle) + c.Served)},
	)
	return []claims.Result{r}
}

// incidentResults has a row for each failure of a run of bench incident with modes off and on.
func incidentResults(t *testing.T, text []byte) []claims.Result {
	t.Helper()
	var run incident.Report
	if err := json.Unmarshal(text, &run); err != nil || len(run.Incidents) == 0 {
		t.Fatalf("that is not the JSON of bench incident: %v", err)
	}
	var results []claims.Result
	for _, in := range run.Incidents {
		id := "incident-" + fmt.Sprint(in.Failure)
		i, j := modeIndex(&in, "off"), modeIndex(&in, "on")
		if !slices.Contains(apartIDs, id) || i < 0 || j < 0 {
			continue
		}
		off, on := &in.Modes[i].During, &in.Modes[j].During
		r := claims.Result{ID: id}
		for name, f := range map[string]*incident.Figures{"without protection": off, "with it": on} {
			r.Figures = append(r.Figures, figuresOf(name, []claims.Figure{
				{Name: "mean", Unit: claims.Seconds, Value: float64(f.Mean)},
				{Name: "failed", Unit: claims.Percent, Value: failedShare(f)},
			})...)
		}
		slices.SortStableFunc(r.Figures, func(a, b claims.Figure) int { return -strings.Compare(a.Of, b.Of) })
		r.Figures = append(
			r.Figures,
			claims.Figure{Name: "mean, without / with", Unit: claims.Number, Value: float64(off.Mean / on.Mean)},
			claims.Figure{Name: "failed, without / with", Unit: claims.Number, Value: failedShare(off) / max(failedShare(on), 100/float64(on.Requests))}, // as in the report: a share of 0 counts as one request
		)
		results = append(results, r)
	}
	return results
}

func modeIndex(in *incident.Incident, name string) int {
	return slices.IndexFunc(in.Modes, func(trial incident.Trial) bool { return trial.Mode == name })
}

// failedShare returns a percentage.
func failedShare(f *incident.Figures) float64 { return 100 * float64(f.Failed) / float64(f.Requests) }

func figuresOf(name string, figures []claims.Figure) []claims.Figure {
	for i := range figures {
		figures[i].Of = name
	}
	return figures
}

// tracesResults returns the figures of a run of BenchmarkTracesPaired.
func tracesResults(t *testing.T, text []byte) []claims.Result {
	t.Helper()
	var run struct{ Figures []claims.Figure }
	if err := json.Unmarshal(text, &run); err != nil || len(run.Figures) == 0 {
		t.Fatalf("these are not the figures of BenchmarkTracesPaired: %d, %v", len(run.Figures), err)
	}
	return []claims.Result{{ID: "traces", Figures: run.Figures}}
}
