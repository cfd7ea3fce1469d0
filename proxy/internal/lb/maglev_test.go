package lb_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/penstock/penstock/proxy/internal/lb"
)

func equalWeights(n int) []int { return slices.Repeat([]int{1}, n) }

func endpointsNamed(n int) []*lb.Endpoint {
	es := make([]*lb.Endpoint, n)
	for i := range es {
		es[i] = lb.NewEndpoint(lb.EndpointConfig{ID: name(i)})
	}
	return es
}

// The paper's experiment on resilience: of 1,000 endpoints some fail at a time, the
// table is made anew, and the entries that differ are counted. The price of evenness is
// the number of differing entries beyond those of the failed endpoints.
func TestTablesAfterFailures(t *testing.T) {
	const n = 1000
	all := endpointsNamed(n)
	rng := rand.New(rand.NewPCG(7, 8))
	for _, c := range []struct {
		name  string
		make  func(members []*lb.Endpoint, weights []int, size int) []uint32
		size  int
		bound float64 // of the entries of others, as a multiple of those that had to move, for few failures
	}{
		{"maglev", lb.MaglevFor, lb.TableSizes[0], 8},
		{"maglev", lb.MaglevFor, lb.TableSizes[1], 6},
		{"source_ip", lb.RaceFor, lb.TableSizes[0], 0},
	} {
		before := c.make(all, equalWeights(n), c.size)
		for _, failed := range []int{1, 5, 10, 20} {
			gone := rng.Perm(n)[:failed]
			weights := equalWeights(n)
			for _, i := range gone {
				weights[i] = 0
			}
			after := c.make(all, weights, c.size)
			must, more := 0, 0
			for slot := range before {
				switch {
				case weights[before[slot]] == 0:
					must++
				case before[slot] != after[slot]:
					more++
				}
			}
			what := fmt.Sprintf("%s, %d slots, %d of %d failed", c.name, c.size, failed, n)
			t.Logf("%s: %.3f %% of the slots had to move, %.3f %% more did", what, 100*float64(must)/float64(c.size), 100*float64(more)/float64(c.size))
			if float64(more) > c.bound*float64(must) {
				t.Errorf("%s: %d slots had to move, %d more did", what, must, more)
			}
		}
	}
}

// With a hundred slots for each endpoint none has more than a hundredth more than
// another, as in the paper.
func TestMaglevIsEven(t *testing.T) {
	for _, n := range []int{1, 2, 3, 10, 100, 655} {
		size := lb.TableSize(n)
		if size < 100*n {
			t.Errorf("%d slots for %d endpoints", size, n)
		}
		counts := make([]int, n)
		for _, i := range lb.MaglevFor(endpointsNamed(n), equalWeights(n), size) {
			counts[i]++
		}
		if least, most := slices.Min(counts), slices.Max(counts); most-least > 1 {
			t.Errorf("%d endpoints: from %d to %d slots", n, least, most)
		}
	}
}

func TestTableSizes(t *testing.T) {
	for _, size := range lb.TableSizes {
		for d := 2; d*d <= size; d++ {
			if size%d == 0 {
				t.Errorf("%d is a multiple of %d: an order of preference would not meet every slot", size, d)
				break
			}
		}
	}
	if got, want := lb.TableSize(10_000), lb.TableSizes[2]; got != want {
		t.Errorf("%d slots for 10,000 endpoints, want %d", got, want)
	}
	if got, want := lb.TableSize(1<<30), lb.TableSizes[len(lb.TableSizes)-1]; got != want {
		t.Errorf("%d slots for more than there can be, want %d", got, want)
	}
}
