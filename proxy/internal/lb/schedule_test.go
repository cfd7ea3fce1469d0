package lb_test

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/penstock/penstock/proxy/internal/lb"
)

func sum(weights []int) int {
	n := 0
	for _, w := range weights {
		n += w
	}
	return n
}

// A whole schedule is in exact proportion to the weights; a part of one, wherever it
// begins and also across the end, is off by little for every endpoint.
func TestScheduleIsSmooth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weights := rapid.SliceOfN(rapid.OneOf(rapid.IntRange(0, 5), rapid.IntRange(0, lb.MaxWeight)), 1, 40).Draw(t, "weights")
		turns := lb.Schedule(weights)
		total := sum(weights)
		if total == 0 {
			if len(turns) != 0 {
				t.Fatalf("a schedule of %d without weights", len(turns))
			}
			return
		}
		counts := make([]int, len(weights))
		for _, i := range turns {
			counts[i]++
		}
		for i, w := range weights {
			if counts[i]*total != w*len(turns) {
				t.Fatalf("endpoint %d of weight %d of %d has %d of %d turns", i, w, total, counts[i], len(turns))
			}
		}
		checkWindow(t, weights, turns)
	})
}

func checkWindow(t *rapid.T, weights []int, turns []uint32) {
	from := rapid.IntRange(0, len(turns)-1).Draw(t, "from")
	n := rapid.IntRange(0, 2*len(turns)).Draw(t, "length")
	counts := make([]int, len(weights))
	for k := range n {
		counts[turns[(from+k)%len(turns)]]++
	}
	for i, w := range weights {
		want := float64(n) * float64(w) / float64(sum(weights))
		if off := math.Abs(float64(counts[i]) - want); off >= 2 {
			t.Fatalf("endpoint %d of weight %d: %d of %d turns from %d on, want %.1f", i, w, counts[i], n, from, want)
		}
	}
}

// The example by which nginx explains smooth round robin: 5, 1, 1 gives no five in a
// row.
func TestScheduleOfThree(t *testing.T) {
	turns := lb.Schedule([]int{5, 1, 1})
	run := 1
	for i := 1; i < 2*len(turns); i++ {
		if turns[i%len(turns)] == turns[(i-1)%len(turns)] {
			run++
		} else {
			run = 1
		}
		if run > 3 {
			t.Fatalf("four in a row in %v", turns)
		}
	}
	if want := 7; len(turns) != want {
		t.Errorf("%d turns, want %d", len(turns), want)
	}
	if got := len(lb.Schedule([]int{100, 50, 0})); got != 3 {
		t.Errorf("a schedule of %d for 100, 50, 0: want 3", got)
	}
}
