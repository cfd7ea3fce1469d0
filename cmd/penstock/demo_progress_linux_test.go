package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/bench"
	"github.com/penstock/penstock/bench/load"
)

// shown returns what a progress shows of a trial half done, and of the same
// when it is over, on a terminal of that width (0: on none).
func shown(width int) string {
	var out bytes.Buffer
	p := &progress{w: &out, width: func() (int, bool) { return width, width > 0 }}
	now := bench.Progress{
		Trial: 5, Trials: 20, Round: 1, Rounds: 5, Contestant: "penstock",
		Plan:     load.Plan{Workload: load.Bulk, Duration: time.Second},
		Received: 1e9, Elapsed: time.Second / 2,
	}
	p.show(now)
	now.Result = &load.Result{Received: 3e9, Elapsed: time.Second}
	p.show(now)
	p.end()
	return out.String()
}

func TestProgressOnATerminalIsOneLine(t *testing.T) {
	want := []string{
		"[#####...............] round 2 of 5  bulk  penstock  2.00 GB/s",
		"[######..............] round 2 of 5  bulk  penstock  3.00 GB/s",
		"",
	}
	for _, width := range []int{1, 2, 30, 63, 200} {
		states := strings.Split(shown(width), eraseLine)[1:]
		if len(states) != len(want) {
			t.Fatalf("%d columns: %q", width, states)
		}
		for i, state := range states {
			if strings.ContainsAny(state, "\n\r\x1b") || len(state) >= width || !strings.HasPrefix(want[i], state) {
				t.Errorf("%d columns: %q", width, state)
			}
			if width > len(want[i]) && state != want[i] {
				t.Errorf("%d columns: got %q, want %q", width, state, want[i])
			}
		}
	}
}

func TestProgressElsewhereIsALineForEachTrial(t *testing.T) {
	if got, want := shown(0), "round 2 of 5  bulk  penstock  3.00 GB/s\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestTerminalWidthOfWhatIsNone(t *testing.T) {
	if _, terminal := terminalWidth(new(bytes.Buffer), func(string) string { return "" }); terminal {
		t.Error("a buffer is no terminal")
	}
}
