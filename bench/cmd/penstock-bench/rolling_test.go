package main

import "testing"

// A rolling restart is interrupted like other comparisons.
func TestAnInterruptedRollingRestartIsReported(t *testing.T) {
	x := interrupted{
		args:      []string{"--scenario", "single", "--peers", "penstock", "--seconds", "0.1", "--rate", "20", "--rounds", "100"},
		at:        []string{"round 2 of 100", "single"},
		processes: 0, // the processes of the first round have ended
		printed:   []string{"Interrupted: what follows is what was measured until then.\n", "\nsingle: the only endpoint is away"},
		written:   `"lost_under_way"`,
	}
	x.test(t, "rolling")
}
