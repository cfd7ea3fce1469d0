package lb_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/penstock/penstock/proxy/internal/lb"
)

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
