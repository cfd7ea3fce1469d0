package vecio

import (
	"testing"

	"pgregory.net/rapid"
)

// TestSendsModel compares the account with a set of numbers, over the wrap-around
// of the counter.
func TestSendsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		start := rapid.SampledFrom([]uint32{0, 1<<31 - 3, 1<<32 - 5, 1<<32 - 1}).Draw(t, "start")
		s := sends{next: start, done: start}
		var calls []bool // by their distance from start: whether they are done
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "send") {
				if got := s.add(); got != start+uint32(len(calls)) {
					t.Fatalf("call %d, want %d", got, start+uint32(len(calls)))
				}
				calls = append(calls, false)
			} else {
				lo := rapid.IntRange(-2, len(calls)+1).Draw(t, "lo")
				hi := rapid.IntRange(lo-1, lo+3).Draw(t, "hi")
				got := s.complete(start+uint32(lo), start+uint32(hi))
				if want := finish(calls, lo, hi); got != want {
					t.Fatalf("complete %d to %d: %v, want %v", lo, hi, got, want)
				}
			}
			check(t, &s, start, calls)
		}
	})
}

// finish does the work of complete, on a set.
func finish(calls []bool, lo, hi int) bool {
	if lo < 0 || hi < lo || hi >= len(calls) {
		return false
	}
	for i := lo; i <= hi; i++ {
		if calls[i] {
			return false
		}
	}
	for i := lo; i <= hi; i++ {
		calls[i] = true
	}
	return true
}

func check(t *rapid.T, s *sends, start uint32, calls []bool) {
	inOrder := 0
	for inOrder < len(calls) && calls[inOrder] {
		inOrder++
	}
	if got, want := s.outstanding(), uint32(len(calls)-inOrder); got != want {
		t.Fatalf("%d outstanding, want %d", got, want)
	}
	for i := range calls {
		if got, want := s.finished(start+uint32(i)), i < inOrder; got != want {
			t.Fatalf("call %d finished: %v, want %v", i, got, want)
		}
	}
	for i := 1; i < len(s.ahead); i++ {
		if a, b := s.ahead[i-1], s.ahead[i]; b.lo-start <= a.hi-start+1 {
			t.Fatalf("spans %v and %v touch", a, b)
		}
	}
}

func TestSendsAllocateNothing(t *testing.T) {
	var s sends
	round := func() {
		a, b := s.add(), s.add()
		s.complete(b, b)
		s.complete(a, a)
	}
	round()
	if n := testing.AllocsPerRun(100, round); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
