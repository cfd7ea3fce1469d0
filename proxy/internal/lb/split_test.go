package lb_test

import (
	"errors"
	"math"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/penstock/penstock/proxy/internal/lb"
)

// Any number of clients in a row is shared by the percentages, within a few.
func TestSplitIsSmooth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cuts := rapid.SliceOfN(rapid.IntRange(0, 20), 1, 5).Draw(t, "parts")
		total := sum(cuts)
		if total == 0 {
			cuts[0], total = 1, 1
		}
		percents := make([]float64, len(cuts))
		for i, c := range cuts {
			percents[i] = 100 * float64(c) / float64(total)
		}
		s, err := lb.NewWeightedSplit(percents...)
		if err != nil {
			t.Fatal(err)
		}
		counts := make([]int, len(cuts))
		n := rapid.IntRange(1, 5000).Draw(t, "clients")
		for range n {
			counts[s.Next()]++
		}
		for i, c := range counts {
			want := float64(n) * percents[i] / 100
			if math.Abs(float64(c)-want) > 8 || cuts[i] == 0 && c > 0 {
				t.Fatalf("part %d of %v: %d of %d, want %.1f", i, percents, c, n, want)
			}
		}
	})
}

func TestSplitChangesLive(t *testing.T) {
	s, err := lb.NewWeightedSplit(100, 0)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 2000 {
				if n := s.Next(); n < 0 || n > 1 {
					t.Errorf("part %d", n)
				}
			}
		})
	}
	for p := 0.0; p <= 100; p += 12.5 {
		if err := s.Set(100-p, p); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
	for range 1000 {
		if s.Next() != 1 {
			t.Fatal("a client of the part that has 0 %")
		}
	}
}

func TestSplitsThatAreNone(t *testing.T) {
	for _, percents := range [][]float64{{}, {50}, {50, 51}, {-1, 101}, {math.NaN(), 100}} {
		if _, err := lb.NewWeightedSplit(percents...); !errors.Is(err, lb.ErrSplit) {
			t.Errorf("%v: %v, want ErrSplit", percents, err)
		}
	}
	s, err := lb.NewWeightedSplit(33.4, 33.3, 33.3)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Set(50, 50); !errors.Is(err, lb.ErrSplit) {
		t.Errorf("another number of parts: %v", err)
	}
}
