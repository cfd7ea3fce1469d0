package main

import "testing"

// Comparisons of writes and flows of iperf3 are interrupted like others.
func TestInterruptedWritesAreReported(t *testing.T) {
	x := interrupted{
		args:      []string{"--sizes", "1300", "--total", "1MiB", "--rounds", "1000"},
		at:        []string{"round 1 of 1000", "vecio-loop"},
		processes: 2,
		printed:   []string{"Interrupted: what follows is what was measured until then.\n", "\nvecio-loop  ", "throughput at 1,300 B"},
		written:   `"bits_per_second"`,
	}
	x.test(t, "write")
}
