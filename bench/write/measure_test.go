package write

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/bench/rounds"
	"github.com/penstock/penstock/internal/testutil/tool"
)

// setup is a comparison that takes a second.
func setup(t *testing.T) Setup {
	t.Helper()
	g := process.NewGroup()
	t.Cleanup(g.Close)
	return Setup{
		Setup: rounds.Setup{Group: g, Rounds: 1}, Part: spec,
		Shapes: []Shape{Equal(heldSize), Message()}, Total: 1 << 20,
	}
}

func TestMeasure(t *testing.T) {
	s := setup(t)
	s.Rounds = 2
	var seen []string
	s.Watch = func(p rounds.Progress) { seen = append(seen, fmt.Sprint(p.Round, " ", p.Case, " ", p.Contestant)) }
	r, err := Measure(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if len(seen) != 2*2*len(ways) || seen[0] != "1 1,300 B Write" || r.Turns != Turns || len(r.Groups) != 2 {
		t.Errorf("progress %q, %+v", seen, r)
	}
	for i := range r.Groups {
		g := &r.Groups[i]
		if !slices.Contains(rivals, g.Best) {
			t.Errorf("%s: the best is %q", g.Name, g.Best)
		}
		for _, row := range g.Rows {
			checkRow(t, g, &row)
		}
	}
	if w, b := r.Groups[0].row(wayWrite), r.Groups[0].row(wayBufio64); w.Median.Copied != 0 || b.Median.Copied != 1 {
		t.Errorf("copied %v and %v of each byte", w.Median.Copied, b.Median.Copied)
	}
	checkJSON(t, r)
}

// checkRow checks a row that was measured in two rounds, without counting.
func checkRow(t *testing.T, g *Group, row *Row) {
	t.Helper()
	if g.Noise == nil || g.Noise.Values != 2*Turns {
		t.Errorf("%s: noise %+v", g.Name, g.Noise)
	}
	if len(row.Trials) != 2 || len(row.Turns) != 2*Turns || row.Median == nil || !(row.Median.BitsPerSecond > 0) {
		t.Fatalf("%s, %s: %+v", g.Name, row.Way, row)
	}
	if m := row.Median; m.UserPerGB < 0 || m.SystemPerGB < 0 || m.Objects < 0 || m.Copied < 0 || m.Copied > 1 {
		t.Errorf("%s, %s: %+v", g.Name, row.Way, m)
	}
	if (row.ToWrite == nil) != (row.Way == wayWrite) || (row.ToBest == nil) != (row.Way == g.Best) {
		t.Errorf("%s, %s: ratios %v, %v", g.Name, row.Way, row.ToWrite, row.ToBest)
	}
	if row.ToWrite != nil && (row.ToWrite.Values != 2*Turns || !(row.ToWrite.Low <= row.ToWrite.Median && row.ToWrite.Median <= row.ToWrite.High)) {
		t.Errorf("%s, %s: %+v", g.Name, row.Way, row.ToWrite)
	}
	if row.CallsPerMB.Known() || row.MissesPerBatch.Known() || row.CallsFailed != "" {
		t.Errorf("%s, %s: calls were counted: %+v", g.Name, row.Way, row)
	}
}

// checkJSON compares a report with the documentation of its JSON.
func checkJSON(t *testing.T, r *Report) {
	t.Helper()
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Groups    []map[string]any
		Standings []map[string]any
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	g := got.Groups[0]
	rows, _ := g["ways"].([]any)
	if g["piece_bytes"] != 1300.0 || g["pieces"] != 50.0 || len(rows) != len(ways) {
		t.Fatalf("got %s", text)
	}
	row, _ := rows[1].(map[string]any)
	median, _ := row["median"].(map[string]any)
	for _, name := range []string{
		"bits_per_second", "user_cpu_seconds_per_gb", "system_cpu_seconds_per_gb", "allocated_objects",
		"allocated_bytes", "collections", "copied_in_user_space_per_byte",
	} {
		if x, ok := median[name].(float64); !ok || x < 0 {
			t.Errorf("%s is %v", name, median[name])
		}
	}
	if calls, ok := row["system_calls_per_mb"]; !ok || calls != nil {
		t.Errorf("system_calls_per_mb is %v, want null", calls)
	}
	if to, _ := row["throughput_to_write"].(map[string]any); to["median"] == nil {
		t.Errorf("no ratio: %v", row)
	}
	if len(got.Standings) != 2*(3+1+2) || got.Standings[0]["verdict"] == "" || got.Standings[0]["must"] != mustThroughput {
		t.Errorf("standings %v", got.Standings)
	}
}

func TestEventsAreCountedInTrialsOfTheirOwn(t *testing.T) {
	s, calls, misses := setup(t), &tool.Tool{Events: 6400}, &tool.Tool{Events: 128}
	s.Calls, s.Misses = calls, misses
	dir := t.TempDir()
	s.Profile = func(way string, shape *Shape) string { return ProfileName(dir, way, shape) }
	s.Exchanges = 1
	r, err := Measure(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if n := r.Nagle; n == nil || n.Exchanges != 1 || !(n.Before.P50 > 0) || !(n.After.Max > 0) {
		t.Errorf("write-write-read: %+v", n)
	}
	if all := slices.Compact(slices.Sorted(slices.Values(slices.Concat(calls.PIDs, misses.PIDs)))); len(all) != 3*len(ways) {
		t.Errorf("counted of %v and %v", calls.PIDs, misses.PIDs)
	}
	for i, g := range r.Groups {
		// 20,000 pieces or the whole trial, whichever is less.
		batches := float64(g.batches(s.Total))
		for _, row := range g.Rows {
			if row.CallsPerBatch != report.Number(6400/batches) || row.CallsFailed != "" {
				t.Errorf("%s, %s: %v calls for each of %v batches", g.Name, row.Way, row.CallsPerBatch, batches)
			}
			if mb := row.CallsPerBatch / report.Number(g.Bytes) * 1e6; row.CallsPerMB != mb || row.CallsPerSecond != mb/8e6*row.Median.BitsPerSecond {
				t.Errorf("%s, %s: %v calls/MB, %v calls/s", g.Name, row.Way, row.CallsPerMB, row.CallsPerSecond)
			}
			if row.MissesPerBatch.Known() != (i == 1) {
				t.Errorf("%s, %s: %v misses", g.Name, row.Way, row.MissesPerBatch)
			}
		}
	}
	if files, err := filepath.Glob(filepath.Join(dir, "*.pprof")); err != nil || len(files) != 2*len(ways) {
		t.Errorf("profiles %q, %v", files, err)
	}
}

func TestAToolThatFailsCostsItsFigureOnly(t *testing.T) {
	s := setup(t)
	s.Calls, s.Misses = &tool.Tool{Err: errors.New("not permitted")}, &tool.Tool{Err: errors.New("nor this")}
	r, err := Measure(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range r.Groups[1].Rows {
		if row.CallsFailed != "not permitted" || row.CallsPerMB.Known() || row.MissesPerBatch.Known() || row.Median == nil {
			t.Errorf("%+v", row)
		}
	}
	for _, st := range r.Standings {
		calls, unjudged := strings.Contains(st.Figure, "calls"), st.Verdict == report.Unjudged
		// A trial as short as these may have no tick of user CPU.
		if calls && !unjudged || !calls && unjudged && !strings.Contains(st.Figure, "user CPU") {
			t.Errorf("%+v", st)
		}
	}
}

func TestWhatWasMeasuredUntilTheEndIsReturned(t *testing.T) {
	s := setup(t)
	s.Rounds = 1000
	ctx, cancel := context.WithCancelCause(t.Context())
	reason := errors.New("enough")
	s.Watch = func(p rounds.Progress) {
		if p.Round == 2 {
			cancel(reason)
		}
	}
	r, err := Measure(ctx, s)
	if !errors.Is(err, reason) || len(r.Groups) != 1 {
		t.Fatalf("%v, %+v", err, r)
	}
	if row := r.Groups[0].row(wayVecio); len(row.Trials) < 1 || row.Median == nil || row.ToBest == nil || len(r.Standings) == 0 {
		t.Errorf("%+v, %v", row, r.Standings)
	}
}

func TestADeadPartIsNamed(t *testing.T) {
	for _, dead := range []string{PartSink, partPrefix + wayVecio} {
		s := setup(t)
		s.Part = func(part string) process.Spec {
			if part == dead {
				return process.Spec{Name: part, Path: "/bin/false", Args: []string{"false"}}
			}
			return spec(part)
		}
		r, err := Measure(t.Context(), s)
		var ended *process.EndedError
		if !errors.As(err, &ended) && !strings.Contains(fmt.Sprint(err), "tell "+dead) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v", dead, err)
		}
		if r == nil {
			t.Errorf("%s: no report", dead)
		}
	}
}

// judged returns a report of two ways with these throughputs in their turns.
func judged(write, best, own []report.Number, calls, user [2]report.Number, objects report.Number) *Report {
	s := Equal(heldSize)
	g := newGroup(&s)
	for name, turns := range map[string][]report.Number{wayWrite: write, wayBuffers: best, wayVecio: own} {
		row := g.row(name)
		for _, x := range turns {
			row.Turns = append(row.Turns, Turn{BitsPerSecond: x})
			row.Trials = append(row.Trials, Figures{BitsPerSecond: x, UserPerGB: user[0]})
		}
		row.CallsPerMB = calls[0]
		if name == wayVecio {
			row.CallsPerMB = calls[1]
			for i := range row.Trials {
				row.Trials[i].UserPerGB, row.Turns[i].Objects = user[1], objects
			}
		}
	}
	g.sum()
	r := &Report{Groups: []Group{*g}}
	r.judge()
	return r
}

func TestVerdicts(t *testing.T) {
	won := judged([]report.Number{1e9, 2e9, 1e9}, []report.Number{8e9, 16e9, 9e9}, []report.Number{8e9, 15.6e9, 9e9},
		[2]report.Number{800, 40}, [2]report.Number{1, 0.4}, 0)
	lost := judged([]report.Number{1e9, 2e9, 1e9}, []report.Number{8e9, 16e9, 9e9}, []report.Number{6e9, 12e9, 6e9},
		[2]report.Number{800, 80}, [2]report.Number{1, 0.5}, 1)
	for i, name := range []string{"throughput to Write", "calls", "user CPU", "throughput to the best", "objects", "throughput in all"} {
		if w, l := won.Standings[i], lost.Standings[i]; w.Verdict != report.MustReached || l.Verdict != report.Missed && i < 5 {
			t.Errorf("%s: %+v, %+v", name, w, l)
		}
	}
	// Of pairs: 8/1, 7.8/1 and 9/1. It is not 9 over 1, the quotient of the medians.
	if st := won.Standings[0]; st.Value != 8 || st.Turns == nil || st.Turns.Low != 7.8 || st.Turns.High != 9 || st.Beside != wayWrite {
		t.Errorf("%+v", st)
	}
	if st := won.Standings[3]; st.Beside != wayBuffers || st.Value != 1 {
		t.Errorf("%+v", st)
	}
	for _, st := range won.Standings[6:] { // of the other way, which was not measured
		if st.Way != wayLoop || st.Verdict != report.Unjudged {
			t.Errorf("%+v", st)
		}
	}
}
