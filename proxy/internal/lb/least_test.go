package lb_test

import (
	"math/rand/v2"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/penstock/penstock/proxy/internal/lb"
)

// least computes the policy's definition by looking at all endpoints: the fewest
// sessions for the weight, of those that can be acquired.
func (r *rig) least(req *lb.Request) (score float64, found bool) {
	for _, e := range r.endpoints {
		s := e.State()
		if s.Down || e.Weight() == 0 || e.Limit() > 0 && s.Active >= e.Limit() || tried(req, e) {
			continue
		}
		if mine := scoreOf(e); !found || mine < score {
			score, found = mine, true
		}
	}
	return score, found
}

func tried(req *lb.Request, e *lb.Endpoint) bool {
	for _, other := range req.Tried {
		if other == e {
			return true
		}
	}
	return false
}

func scoreOf(e *lb.Endpoint) float64 { return float64(e.Active()) / float64(e.Weight()) }

// Among any endpoints, whatever happens to them, least_conn picks one with the score
// that looking at all of them finds.
func TestLeastConnIsExact(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 40).Draw(rt, "endpoints")
		var ms []member
		for range n {
			ms = append(ms, member{weight: rapid.IntRange(0, 8).Draw(rt, "weight"), limit: rapid.IntRange(0, 4).Draw(rt, "limit")})
		}
		r := newRig(t, lb.Config{Policy: lb.LeastConn}, ms...)
		any := rapid.Custom(func(t *rapid.T) *lb.Endpoint { return r.endpoints[rapid.IntRange(0, n-1).Draw(t, "endpoint")] })
		pick := func(rt *rapid.T) {
			req := lb.Request{Tried: rapid.SliceOfN(any, 0, 3).Draw(rt, "tried")}
			want, found := r.least(&req)
			e, err := r.Pick(&req)
			switch {
			case (err == nil) != found:
				rt.Fatalf("Pick: %v; looking at all finds one: %v", err, found)
			case err == nil:
				e.Release()
				got := scoreOf(e)
				e.Acquire()
				if got != want {
					rt.Fatalf("took one whose score is %v, the least is %v", got, want)
				}
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"pick":       pick,
			"pick again": pick,
			"release": func(rt *rapid.T) {
				if e := any.Draw(rt, "whose"); e.Active() > 0 {
					e.Release()
				}
			},
			"health": func(rt *rapid.T) { any.Draw(rt, "whose").SetHealthy(rapid.Bool().Draw(rt, "healthy")) },
			"weight": func(rt *rapid.T) { _ = any.Draw(rt, "whose").SetWeight(rapid.IntRange(0, 8).Draw(rt, "weight")) },
			"limit":  func(rt *rapid.T) { any.Draw(rt, "whose").SetLimit(rapid.IntRange(0, 4).Draw(rt, "limit")) },
		})
	})
}

// Those that are equal are drawn at random, each as often as any other, also where
// their number is no power of two and some cannot be had.
func TestLeastConnTies(t *testing.T) {
	const picks = 20000
	r := newRig(t, lb.Config{Policy: lb.LeastConn}, plain(11)...)
	for _, i := range []int{1, 4, 6, 7} {
		r.endpoints[i].SetHealthy(false)
	}
	for i, got := range r.many(picks) {
		if !r.endpoints[i].State().Down {
			near(t, name(i), float64(got), picks/7., 0.06)
		}
	}
}

// Loads that loops bring about at the same time differ by as much as there are loops.
func TestLeastConnOfManyLoops(t *testing.T) {
	r := newRig(t, lb.Config{Policy: lb.LeastConn}, plain(100)...)
	r.SetRandom(rand.Uint64)
	const loops, picks = 8, 2500
	var wg sync.WaitGroup
	for range loops {
		wg.Go(func() {
			for range picks {
				if _, err := r.Pick(&lb.Request{}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	for i, e := range r.endpoints {
		if got, want := e.Active(), loops*picks/100; got < want-loops || got > want+loops {
			t.Errorf("endpoint %d has %d sessions, want %d", i, got, want)
		}
	}
}
