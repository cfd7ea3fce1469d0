package lb_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/penstock/penstock/proxy/internal/lb"
)

// Round robin gives each endpoint its share of those that can be had, within two of
// any number of picks.
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
				e.SetHealthy(rapid.IntRange(0, 3).Draw(rt, "healthy") > 0)
			}
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
			"weight": func(rt *rapid.T) { any.Draw(rt, "whose").SetWeight(rapid.IntRange(0, 8).Draw(rt, "weight")) },
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

// The policies that compare loads.
var comparing = []lb.Policy{lb.LeastConn, lb.RandomTwo}

// drawWeights draws a few endpoints' weights, and returns their sum as well.
func drawWeights(rt *rapid.T) (ms []member, sum int) {
	for _, w := range rapid.SliceOfN(rapid.IntRange(1, 10), 2, 6).Draw(rt, "weights") {
		ms = append(ms, member{weight: w})
		sum += w
	}
	return ms, sum
}

// byChance fails the test unless counts are in proportion to the weights, give or take
// six standard deviations of independent draws.
func byChance(rt *rapid.T, what string, counts []int, ms []member, sum int) {
	n := 0
	for _, got := range counts {
		n += got
	}
	for i, got := range counts {
		part := float64(ms[i].weight) / float64(sum)
		want := float64(n) * part
		if off := math.Abs(float64(got) - want); off > 6*math.Sqrt(want*(1-part))+1 {
			rt.Fatalf("%s: endpoint %d of weight %d has %d of %d, want %.0f", what, i, ms[i].weight, got, n, want)
		}
	}
}

// Where all endpoints are idle, clients are shared by weight. So no endpoint starves,
// which passive checks would then never see.
func TestIdleSharesFollowWeights(t *testing.T) {
	for _, p := range comparing {
		t.Run(p.String(), func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				ms, sum := drawWeights(rt)
				r := newRig(t, lb.Config{Policy: p}, ms...)
				byChance(rt, "idle", r.many(60*sum), ms, sum)
			})
		})
	}
}

// A client that one endpoint has refused is sent to the others by their weights, and not
// to that one's neighbours in the tree.
func TestIdleRetriesFollowWeights(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		ms, sum := drawWeights(rt)
		refused := member{weight: max(sum/2, 1)}
		r := newRig(t, lb.Config{Policy: lb.LeastConn}, append([]member{refused}, ms...)...)
		req := lb.Request{Tried: r.endpoints[:1]}
		for range 300 * sum {
			r.endpoints[r.one(&req)].Release()
		}
		byChance(rt, "retries", r.picked()[1:], ms, sum)
	})
}

// Sessions that stay are shared by weight: exactly, where all are compared.
func TestHeldSharesFollowWeights(t *testing.T) {
	for _, p := range comparing {
		t.Run(p.String(), func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				ms, sum := drawWeights(rt)
				r := newRig(t, lb.Config{Policy: p}, ms...)
				each := rapid.IntRange(1, 50).Draw(rt, "sessions for a weight of 1")
				for range each * sum {
					r.one(&lb.Request{})
				}
				for i, e := range r.endpoints {
					want, off := each*ms[i].weight, 0.0
					if p == lb.RandomTwo {
						off = 6*math.Sqrt(float64(want)) + 1
					}
					if math.Abs(float64(e.Active()-want)) > off {
						rt.Fatalf("endpoint %d of weight %d has %d sessions, want %d", i, ms[i].weight, e.Active(), want)
					}
				}
			})
		})
	}
}

// Where sessions come and go, no endpoint starves, whatever the load. A few sessions
// keep the heavy busy, and the light get more than their part, never less. With two
// sessions for a weight of 1 and more, clients are shared by weight.
func TestSharesOfAnyLoad(t *testing.T) {
	for _, p := range comparing {
		t.Run(p.String(), func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				ms, sum := drawWeights(rt)
				r := newRig(t, lb.Config{Policy: p}, ms...)
				alive := rapid.IntRange(1, 4*sum).Draw(rt, "alive")
				n := 100 * sum
				r.exchange(alive, n)
				for i, got := range r.picked() {
					want := float64(n*ms[i].weight) / float64(sum)
					chance := 6 * math.Sqrt(want) // six standard deviations of a random pick
					if g := float64(got); g < float64(n/sum)/2 || alive >= 2*sum && (g < want/1.5-chance || g > want*1.5+chance) {
						rt.Fatalf("endpoint %d of weight %d was picked %d times of %d", i, ms[i].weight, got, n)
					}
				}
			})
		})
	}
}

// exchange picks n times, and has so many sessions alive, any of which ends for each
// that begins.
func (r *rig) exchange(alive, n int) {
	r.t.Helper()
	sessions := make([]*lb.Endpoint, alive)
	for i := range n {
		e := r.endpoints[r.one(&lb.Request{})]
		k := int(lb.Mix(uint64(i)+1) % uint64(alive))
		if sessions[k] != nil {
			sessions[k].Release()
		}
		sessions[k] = e
	}
}

// Where all endpoints are idle, the share of those in slow start grows as well: of one
// alone, and of neighbours, each of which has its part.
func TestIdleSlowStart(t *testing.T) {
	const n, slow, rounds = 10, 10 * time.Second, 40000
	for _, p := range append(comparing, lb.RoundRobin) {
		for _, starting := range []int{1, 3, n} {
			for _, part := range []float64{0.1, 0.5, 0.9, 1} {
				t.Run(fmt.Sprintf("%v/%d/%v", p, starting, part), func(t *testing.T) {
					r := newRig(t, lb.Config{Policy: p, SlowStart: slow}, plain(n)...)
					for _, e := range r.endpoints[n-starting:] {
						e.Added()
					}
					r.clock.Add(int64(part * float64(slow)))
					r.many(100) // scores follow the clock with the picks
					for i, got := range r.many(rounds)[n-starting:] {
						near(t, name(i), float64(got), rounds*part/(float64(n-starting)+part*float64(starting)), 0.2)
					}
				})
			}
		}
	}
}

// Where each endpoint has one session an idle one is not the next for that alone, as
// long as it has less than half of its weight.
func TestSlowStartOfFewSessions(t *testing.T) {
	const n = 50
	for part, want := range map[float64]int{0.1: 0, 0.4: 0, 0.6: 1} {
		r := newRig(t, lb.Config{Policy: lb.LeastConn, SlowStart: time.Minute}, plain(n)...)
		last := r.endpoints[n-1]
		last.SetDraining(true)
		for range n - 1 {
			r.one(&lb.Request{})
		}
		last.SetDraining(false)
		last.Added()
		r.clock.Add(int64(part * float64(time.Minute)))
		for range n / 2 {
			r.one(&lb.Request{})
		}
		if got := last.Active(); got != want {
			t.Errorf("with %v of its weight it has %d sessions, want %d", part, got, want)
		}
	}
}

// The weights of as many endpoints as there may be fit beside a score.
func TestManyHeavyEndpoints(t *testing.T) {
	const n = 20_000
	ms := make([]member, n)
	for i := range ms {
		ms[i].weight = lb.MaxWeight
		if i >= n/2 {
			ms[i].weight = 1
		}
	}
	r := newRig(t, lb.Config{Policy: lb.LeastConn}, ms...)
	heavy, light := 0, 0
	for i, got := range r.many(200_000) {
		if i < n/2 {
			heavy += got
		} else {
			light += got
		}
	}
	near(t, "heavy", float64(heavy), 200_000*256/257., 0.01)
	near(t, "light", float64(light), 200_000/257., 0.25)
}
