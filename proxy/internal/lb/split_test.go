package lb_test

import (
	"errors"
	"fmt"
	"log"
	"math"
	"net/netip"
	"sync"
	"testing"

	"github.com/penstock/penstock/proxy/internal/lb"
	"pgregory.net/rapid"
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

func Example() {
	var members []lb.Member
	for _, id := range []string{"10.0.0.11:5432", "10.0.0.12:5432"} {
		e := lb.NewEndpoint(lb.EndpointConfig{ID: id})
		members = append(members, lb.Member{Endpoint: e, Weight: 1})
	}
	set := lb.NewSet(members, &lb.Config{Policy: lb.First}, nil)
	set.Attach()
	defer set.Detach()

	members[0].Endpoint.SetHealthy(false) // the result of a health check
	e, err := set.Pick(&lb.Request{Source: netip.MustParseAddrPort("192.0.2.1:40000")})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(e.ID(), e.Active())
	e.Release() // when the session has ended

	// Output: 10.0.0.12:5432 1
}

// A tenth of the clients tries the new version.
func ExampleSplit() {
	split, err := lb.NewWeightedSplit(90, 10)
	if err != nil {
		log.Fatal(err)
	}
	var counts [2]float64
	for range 1000 {
		counts[split.Next()]++
	}
	fmt.Printf("%.0f %% and %.0f %%\n", counts[0]/10, counts[1]/10)

	// Output: 90 % and 10 %
}
