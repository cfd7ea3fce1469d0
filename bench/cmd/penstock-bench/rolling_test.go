package main

import "testing"

// A rolling restart is interrupted as other comparisons are.
func TestAnInterruptedRollingRestartIsReported(t *testing.T) {
	x := interrupted{
		args:      []string{"--scenario", "single", "--peers", "penstock", "--seconds", "0.1", "--rate", "20", "--rounds", "100"},
		at:        []string{"round 2 of 100", "single"},
		processes: 0, // those of the first round are gone
		printed:   []string{"Interrupted: what follows is what was measured until then.\n", "\nsingle: the only endpoint is away"},
		written:   `"lost_under_way"`,
	}
	x.test(t, "rolling")
}
