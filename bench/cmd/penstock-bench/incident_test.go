package main

import "testing"

// An incident is interrupted like other comparisons.
func TestAnInterruptedIncidentIsReported(t *testing.T) {
	x := interrupted{
		args: []string{
			"--modes", "off,on", "--rate", "50", "--endpoints", "2", "--timeout", "100ms",
			"--before", "200ms", "--during", "300ms", "--after", "100ms",
		},
		at:        []string{"slow", "on"},
		processes: 1,
		printed:   []string{"Interrupted: what follows is what was measured until then.\n", "\nsilent: 1 of 2 endpoints accept"},
		written:   `"mode": "on"`,
	}
	x.test(t, "incident")
}
