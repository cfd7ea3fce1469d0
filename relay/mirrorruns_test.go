package relay

import (
	"math/rand/v2"
	"testing"
)

// TestMirrorRuns: of bytes that go in and out in any pieces it is known which came by tee, and nothing is kept of those
// that are out.
func TestMirrorRuns(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var r mirrorRuns
	var model []bool
	for range 5000 {
		if n := random.IntN(20); random.IntN(2) == 0 {
			teed := random.IntN(2) == 0
			r.add(n, teed)
			for range n {
				model = append(model, teed)
			}
		} else {
			n = min(n, len(model))
			want := 0
			for _, teed := range model[:n] {
				if teed {
					want++
				}
			}
			model = model[n:]
			if got := r.remove(n); got != want {
				t.Fatalf("%d of %d bytes by tee, want %d", got, n, want)
			}
		}
		if len(model) == 0 && len(r) != 0 {
			t.Fatalf("%d runs of no byte", len(r))
		}
	}
	r.reset()
	if got := r.remove(5); got != 0 || cap(r) > 16 {
		t.Errorf("%d after a reset, memory for %d", got, cap(r))
	}
	if n := testing.AllocsPerRun(100, func() { r.add(3, true); r.add(3, false); r.remove(6); r.reset() }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
