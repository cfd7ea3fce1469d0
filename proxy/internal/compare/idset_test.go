package compare

import (
	"testing"

	"pgregory.net/rapid"
)

// TestIDSet: a set has the numbers that were added, and as many spans as they have runs.
func TestIDSet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := purse{budget: NewBudget(1 << 20)}
		var s idSet
		has := make(map[uint32]bool)
		for _, n := range rapid.SliceOf(rapid.Uint32Range(0, 40)).Draw(t, "numbers") {
			if !s.add(n, &p) {
				t.Fatal("no memory")
			}
			has[n] = true
		}
		runs := 0
		for n := range uint32(42) {
			if s.has(n) != has[n] {
				t.Fatalf("%d: %v", n, s)
			}
			if has[n] && (n == 0 || !has[n-1]) {
				runs++
			}
		}
		if len(s) != runs || p.held != runs*spanBytes {
			t.Fatalf("%v: %d runs, %d bytes", s, runs, p.held)
		}
	})
}
