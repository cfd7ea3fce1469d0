package state_test

import (
	"flag"
	"os"
	"testing"

	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/lane/internal/state"
)

var update = flag.Bool("update", false, "write the header of the BPF programs")

// TestHeader: the programs are compiled with the numbers of the table.
func TestHeader(t *testing.T) {
	const path = "../program/bpf/state.h"
	if *update {
		must.Do(t, os.WriteFile(path, []byte(state.Header()), 0o644))
	}
	b, err := os.ReadFile(path)
	if err != nil || string(b) != state.Header() {
		t.Errorf("%s is not that of the table (%v): go test ./lane/internal/state -run TestHeader -update", path, err)
	}
}

// TestTable: each state is reached from Free and leads back to it, and no change is listed twice.
func TestTable(t *testing.T) {
	reach := func(from state.State, next func(state.Transition) (a, b state.State)) map[state.State]bool {
		seen := map[state.State]bool{from: true}
		for more := true; more; {
			more = false
			for _, tr := range state.Transitions {
				if a, b := next(tr); seen[a] && !seen[b] {
					seen[b], more = true, true
				}
			}
		}
		return seen
	}
	there := reach(state.Free, func(tr state.Transition) (a, b state.State) { return tr.From, tr.To })
	back := reach(state.Free, func(tr state.Transition) (a, b state.State) { return tr.To, tr.From })
	for _, s := range state.All() {
		if !there[s] || !back[s] {
			t.Errorf("%v: reached %v, leads back %v", s, there[s], back[s])
		}
	}
	seen := make(map[[3]uint8]bool)
	for _, tr := range state.Transitions {
		k := [3]uint8{uint8(tr.From), uint8(tr.To), uint8(tr.By)}
		if seen[k] || tr.When == "" {
			t.Errorf("%v to %v by %v is listed twice, or has no reason", tr.From, tr.To, tr.By)
		}
		seen[k] = true
	}
}

func TestWord(t *testing.T) {
	var w state.Word
	for i, s := range []state.State{state.User, state.Armed, state.Claimed, state.User, state.Armed, state.Claimed} {
		before := w
		if w = w.Next(s); w.State() != s || w <= before {
			t.Errorf("change %d: %#x, state %v, want %v", i, w, w.State(), s)
		}
	}
}
