package reload

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/bench/rounds"
)

// setup is a measurement that takes some seconds.
func setup(t *testing.T) Setup {
	t.Helper()
	g, _ := process.NewGroupWherePossible()
	t.Cleanup(g.Close)
	return Setup{
		Setup: rounds.Setup{Group: g, Rounds: 1}, Program: self, Dir: t.TempDir(), Listeners: 5, Endpoints: 20, Interval: "30s",
		Reloads: 20, Idle: 40, Busy: 2, RowListeners: 3,
	}
}

func TestMeasure(t *testing.T) {
	s := setup(t)
	seen := make(map[string]int)
	s.Watch = func(p rounds.Progress) { seen[p.Case]++ }
	r, err := Measure(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Rows) != 2 || seen["everything"] != 2 || seen["one upstream"] != 2 || r.FileBytes == 0 {
		t.Fatalf("%+v, %v", r, seen)
	}
	for _, row := range r.Rows {
		m := row.Median
		if m == nil || !(m.First > 0) || !(m.Prepared > 0) || !(m.Swapped > 0) || !(m.ValidToSwapped > m.Prepared) || !(m.LongTurns >= 0) || !(row.Worst.First >= m.First) {
			t.Errorf("%s: %+v", row.Name, m)
		}
	}
	l := r.Steady
	if l == nil || l.Reloads != 20 || l.Clients == nil || l.Clients.Idle != 40 || l.Clients.Served == 0 || len(l.Violations) > 0 || len(l.Held) != 10 {
		t.Fatalf("%+v, %+v", l, l.Clients)
	}
	if h := l.Held[9]; h.Descriptors < 80 || h.Goroutines == 0 || !(h.RssAnon > 0) {
		t.Errorf("%+v", h)
	}
}

// TestMeasureNeedsTheNewState: a program that does not follow its configuration is not measured
// by mistake.
func TestMeasureNeedsTheNewState(t *testing.T) {
	t.Setenv("DEAF", "1")
	s := setup(t)
	reason := errors.New("enough")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 2*time.Second, reason)
	defer cancel()
	if r, err := Measure(ctx, s); !errors.Is(err, reason) || len(r.Rows) != 1 || r.Rows[0].Median != nil {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestPartsHaveNames(t *testing.T) {
	if IsPart("load") || RunPart(t.Context(), "load", nil, nil) == nil {
		t.Error("there is a part load")
	}
}
