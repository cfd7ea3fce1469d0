package loop_test

import (
	"testing"

	"github.com/penstock/penstock/loop"
	"pgregory.net/rapid"
)

// accepts plays turns against a queue: arrivals[i] connections come before turn i. It
// returns how many calls of accept found the queue empty, and how long the queue was.
func accepts(b *loop.BatchSize, arrivals []int) (empty, longest int) {
	queued := 0
	for i, n := range arrivals {
		queued += n
		longest = max(longest, queued)
		if queued == 0 {
			continue
		}
		size := b.Next(int64(i))
		n := min(size, queued)
		queued -= n
		b.Learn(n, n < size)
		if n < size {
			empty++
		}
	}
	return empty, longest
}

func repeat(n, times int) (arrivals []int) {
	for range times {
		arrivals = append(arrivals, n)
	}
	return arrivals
}

func TestBatchSize(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		arrivals       []int
		empty, longest int // at most
	}{
		"one now and then":       {[]int{1, 0, 0, 1, 0, 1, 0, 0, 0, 1, 0, 1, 0}, 0, 1},
		"one in each turn":       {repeat(1, 1000), 20, 1},
		"seven in each turn":     {repeat(7, 1000), 30, 50},
		"1000 at once":           {append([]int{1000}, repeat(0, 100)...), 1, 1000},
		"100 in each turn":       {repeat(100, 10), 0, 1000},
		"a few at once, at rest": {[]int{5, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0}, 2, 5},
	} {
		t.Run(name, func(t *testing.T) {
			empty, longest := accepts(loop.NewBatchSize(), test.arrivals)
			if empty > test.empty || longest > test.longest {
				t.Errorf("%d calls found it empty, up to %d waited; want at most %d, %d", empty, longest, test.empty, test.longest)
			}
		})
	}
}

// TestBatchSizeIsBounded: whatever it learns.
func TestBatchSizeIsBounded(t *testing.T) {
	t.Parallel()

	rapid.Check(t, func(t *rapid.T) {
		b := loop.NewBatchSize()
		for i, arrivals := range rapid.SliceOf(rapid.IntRange(0, 200)).Draw(t, "arrivals") {
			size := b.Next(int64(i))
			if size < 1 || size > loop.MaxAccept {
				t.Fatalf("the size is %d", size)
			}
			b.Learn(min(size, arrivals), arrivals < size)
		}
	})
}

// TestBatchSizeLooksLess: one in each turn, over and over: asking for a second one is
// a mistake that is made ever more rarely.
func TestBatchSizeLooksLess(t *testing.T) {
	t.Parallel()

	const turns = 100_000
	empty, _ := accepts(loop.NewBatchSize(), repeat(1, turns))
	if empty > turns/40 {
		t.Errorf("%d of %d turns had a call for nothing", empty, turns)
	}
}
