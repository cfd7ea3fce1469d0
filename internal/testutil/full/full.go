// Package full marks tests that the gate leaves out and .ci/run full runs: tests that take minutes, and tests
// that need an otherwise idle machine.
package full

import (
	"os"
	"testing"
)

// Variable is the environment variable that .ci/run full sets.
const Variable = "PENSTOCK_FULL"

// Only skips t, for a reason, unless everything runs.
func Only(t testing.TB, reason string) {
	t.Helper()
	if !Everything() {
		t.Skipf("%s: set %s=1, or use .ci/run full", reason, Variable)
	}
}

// Everything reports whether tests run in full, and not only as much as the gate has time for.
func Everything() bool { return os.Getenv(Variable) != "" }

// Times returns how often a test repeats itself: few times in the gate, many times when everything runs.
func Times(few, many int) int {
	if Everything() {
		return many
	}
	return few
}
