package filter

import "testing"

// TestCrew: what waits is taken in order. In a steady state this takes no memory of the collector's, which each chunk of a
// stream would cost.
func TestCrew(t *testing.T) {
	c, added, taken := crew[int]{running: 1}, 0, 0
	for waiting := range 3 {
		if n := testing.AllocsPerRun(100, func() {
			if !c.add(added, waiting+1, 1) || c.add(-1, waiting+1, 1) || c.length() != waiting+1 {
				t.Fatalf("%d wait, want %d", c.length(), waiting+1)
			}
			if got, ok := c.take(); got != taken || !ok {
				t.Fatalf("%d was taken, want %d", got, taken)
			}
			added, taken = added+1, taken+1
		}); n > 0 {
			t.Errorf("%v allocations while %d wait", n, waiting)
		}
		c.add(added, waiting+1, 1)
		added++
	}
}
