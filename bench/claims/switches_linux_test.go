package claims_test

import (
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/bench/claims"
	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/bench/switches"
)

var switched = flag.String("switches", "", "record what penstock bench switches --json wrote to this `file`")

// apart holds what commands other than bench claims measured, for the page.
const apart = "recorded_apart.json"

// recordSwitches records the last group of a run of bench switches as the result
// of ten-thousand-connections.
func recordSwitches(t *testing.T, name string) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var run struct {
		Began   time.Time
		Machine report.Machine
		switches.Report
	}
	if err := json.Unmarshal(text, &run); err != nil || len(run.Groups) == 0 {
		t.Fatalf("%s is not what bench switches writes: %d groups, %v", name, len(run.Groups), err)
	}
	kernel, _, _ := strings.Cut(run.Machine.Kernel, "-")
	rec := &claims.Record{
		Date: run.Began.Format(time.DateOnly), Machine: kernel,
		Results: []claims.Result{switchesResult(&run.Groups[len(run.Groups)-1])},
	}
	var b strings.Builder
	if err := rec.Write(&b); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(apart, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

func switchesResult(g *switches.Group) claims.Result {
	r := claims.Result{ID: "ten-thousand-connections", Figures: []claims.Figure{
		{Name: "connections", Unit: claims.Exact, Value: float64(g.Connections)},
	}}
	for _, row := range g.Rows {
		if row.Median == nil {
			continue
		}
		figures := []claims.Figure{
			{Name: "requests", Unit: claims.Rate, Value: float64(row.Median.RequestsPerSecond)},
			{Name: "system calls", Unit: claims.Rate, Value: float64(row.CallsPerSecond)},
			{Name: "in a request", Unit: claims.Number, Value: float64(row.CallsPerRequest)},
			{Name: "mean", Unit: claims.Seconds, Value: float64(row.Median.Mean)},
			{Name: "p99", Unit: claims.Seconds, Value: float64(row.Median.P99)},
		}
		for i := range figures {
			figures[i].Of = row.Server
		}
		r.Figures = append(r.Figures, figures...)
	}
	return r
}
