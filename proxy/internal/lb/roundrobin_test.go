package lb_test

import (
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/penstock/penstock/proxy/internal/lb"
)

// Round robin gives each endpoint its share of those that can be had, within two of
// any number of picks, also after weights were changed while it was used.
func TestRoundRobinIsFair(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 30).Draw(rt, "endpoints")
		weight := rapid.IntRange(0, 20)
		var ms []member
		for range n {
			ms = append(ms, member{weight: weight.Draw(rt, "weight")})
		}
		r := newRig(t, lb.Config{}, ms...)
		for range 3 {
			checkFair(rt, r)
			for _, e := range r.endpoints {
				if rapid.Bool().Draw(rt, "change") {
					_ = e.SetWeight(weight.Draw(rt, "weight"))
				}
				e.SetHealthy(rapid.IntRange(0, 3).Draw(rt, "healthy") > 0)
			}
			r.Rebuild()
		}
	})
}

func checkFair(rt *rapid.T, r *rig) {
	total := 0
	weights := make([]int, len(r.endpoints))
	for i, e := range r.endpoints {
		if !e.State().Down {
			weights[i] = e.Weight()
			total += weights[i]
		}
	}
	if total == 0 {
		if e, err := r.Pick(&lb.Request{}); err == nil {
			rt.Fatalf("picked %s, which is down or has no weight", e.ID())
		}
		return
	}
	picks := rapid.IntRange(1, 3*total).Draw(rt, "picks")
	for i, got := range r.many(picks) {
		want := float64(picks) * float64(weights[i]) / float64(total)
		if math.Abs(float64(got)-want) > 4 {
			rt.Fatalf("endpoint %d, weight %d of %d: %d of %d picks, want %.1f", i, weights[i], total, got, picks, want)
		}
	}
}

// Of the neighbours of an endpoint that is down none has more clients than the others:
// its turns go to none of them.
func TestRoundRobinSkipsFairly(t *testing.T) {
	r := newRig(t, lb.Config{}, plain(4)...)
	r.endpoints[1].SetHealthy(false)
	for i, got := range r.many(3000) {
		if want := 1000; i != 1 && got != want {
			t.Errorf("endpoint %d: %d picks, want %d", i, got, want)
		}
	}
}

// However many loops take turns, all turns together are in exact proportion.
func TestRoundRobinOfManyLoops(t *testing.T) {
	r := newRig(t, lb.Config{}, member{weight: 5}, member{weight: 3}, member{weight: 2})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 1000 {
				e, err := r.Pick(&lb.Request{})
				if err != nil {
					t.Error(err)
					return
				}
				e.Release()
			}
		})
	}
	wg.Wait()
	for i, want := range []int{4000, 2400, 1600} {
		if got := r.picked()[i]; got != want {
			t.Errorf("endpoint %d: %d picks, want %d", i, got, want)
		}
	}
}

// Where nearly none can be had, those few share alike.
func TestRoundRobinAmongFew(t *testing.T) {
	r := newRig(t, lb.Config{}, plain(5000)...)
	up := []int{3, 4, 4999}
	for i, e := range r.endpoints {
		e.SetHealthy(i == up[0] || i == up[1] || i == up[2])
	}
	counts := r.many(3000)
	for _, i := range up {
		near(t, "picks", float64(counts[i]), 1000, 0.15)
	}
}

// Random two draws by weight, and the one with fewer sessions wins: loads stay
// within a few sessions of each other where plain drawing spreads them.
func TestRandomTwo(t *testing.T) {
	r := newRig(t, lb.Config{Policy: lb.RandomTwo}, member{weight: 1}, member{weight: 2}, member{weight: 1}, member{weight: 4})
	for range 8000 {
		r.one(&lb.Request{})
	}
	for i, e := range r.endpoints {
		near(t, name(i), float64(e.Active()), 1000*float64(e.Weight()), 0.02)
	}

	even := newRig(t, lb.Config{Policy: lb.RandomTwo}, plain(100)...)
	plainly := make([]int, 100)
	rng := rand.New(rand.NewPCG(3, 4))
	for range 10000 {
		even.one(&lb.Request{})
		plainly[rng.IntN(100)]++
	}
	most, mostPlainly := 0, 0
	for i, e := range even.endpoints {
		most = max(most, e.Active())
		mostPlainly = max(mostPlainly, plainly[i])
	}
	if most > 106 || mostPlainly < 115 {
		t.Errorf("the largest load is %d (by drawing one: %d), want 100 and a few (far more)", most, mostPlainly)
	}
}

func TestRandomTwoOfOne(t *testing.T) {
	r := newRig(t, lb.Config{Policy: lb.RandomTwo}, plain(50)...)
	for _, e := range r.endpoints[1:] {
		e.SetHealthy(false)
	}
	if got := r.many(100)[0]; got != 100 {
		t.Errorf("the only usable endpoint has %d of 100 picks", got)
	}
}
