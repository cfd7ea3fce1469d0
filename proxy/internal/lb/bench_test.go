package lb_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/penstock/penstock/proxy/internal/lb"
)

// eachSize runs a benchmark for each policy with a few endpoints and with many, all of
// them or a tenth of them usable.
func eachSize(b *testing.B, f func(b *testing.B, r *rig)) {
	for _, p := range lb.Policies() {
		for _, n := range []int{10, 10_000} {
			for _, ill := range []float64{0, 0.9, 0.999} {
				b.Run(fmt.Sprintf("policy=%v/endpoints=%d/ill=%v", p, n, ill), func(b *testing.B) {
					r := newRig(b, lb.Config{Policy: p}, plain(n)...)
					r.SetRandom(rand.Uint64)
					for i := range int(float64(n) * ill) {
						r.endpoints[i*7%n].SetHealthy(false)
					}
					b.ResetTimer()
					f(b, r)
				})
			}
		}
	}
}

// BenchmarkPick is one pick and one release, with 64 sessions alive meanwhile.
func BenchmarkPick(b *testing.B) {
	eachSize(b, func(b *testing.B, r *rig) {
		b.ReportAllocs()
		churn(b, r, 0, func() bool { return b.Loop() })
	})
}

func BenchmarkPickParallel(b *testing.B) {
	eachSize(b, func(b *testing.B, r *rig) {
		b.RunParallel(func(pb *testing.PB) { churn(b, r, rand.IntN(1<<20), pb.Next) })
	})
}

func churn(b *testing.B, r *rig, from int, next func() bool) {
	var alive [64]*lb.Endpoint
	requests := make([]lb.Request, 4096)
	for i := range requests {
		requests[i] = client(from + i)
	}
	for i := 0; next(); i++ {
		e, err := r.Pick(&requests[i%len(requests)])
		if err != nil {
			b.Error(err)
			return
		}
		if old := alive[i%64]; old != nil {
			old.Release()
		}
		alive[i%64] = e
	}
	for _, e := range alive {
		if e != nil {
			e.Release()
		}
	}
}

// BenchmarkScan measures the cost that least_conn would have if each pick looked at all
// endpoints.
func BenchmarkScan(b *testing.B) {
	for _, n := range []int{10, 10_000} {
		b.Run(fmt.Sprintf("endpoints=%d", n), func(b *testing.B) {
			r := newRig(b, lb.Config{Policy: lb.LeastConn}, plain(n)...)
			for b.Loop() {
				least, best := r.endpoints[0], r.endpoints[0].Active()
				for _, e := range r.endpoints {
					if n := e.Active(); n < best && !e.State().Down {
						least, best = e, n
					}
				}
				least.Acquire()
				least.Release()
			}
		})
	}
}

// BenchmarkNewSet measures the part of a reload that is computed beside the serving
// set. BenchmarkAttach measures its part at the moment of the swap.
func BenchmarkNewSet(b *testing.B) {
	for _, p := range lb.Policies() {
		for _, n := range []int{100, 1000, 10_000} {
			for _, weights := range []string{"equal", "mixed"} {
				b.Run(fmt.Sprintf("policy=%v/endpoints=%d/weights=%s", p, n, weights), func(b *testing.B) {
					ms := benchMembers(n, weights == "mixed")
					b.ReportAllocs()
					for b.Loop() {
						lb.NewSet(ms, &lb.Config{Policy: p}, nil)
					}
				})
			}
		}
	}
}

func BenchmarkAttach(b *testing.B) {
	for _, p := range lb.Policies() {
		b.Run(fmt.Sprintf("policy=%v/endpoints=10000", p), func(b *testing.B) {
			s := lb.NewSet(benchMembers(10_000, false), &lb.Config{Policy: p}, nil)
			for b.Loop() {
				s.Attach()
				s.Detach()
			}
		})
	}
}

func benchMembers(n int, mixed bool) []lb.Member {
	rng := rand.New(rand.NewPCG(5, 6))
	ms := make([]lb.Member, n)
	for i := range ms {
		ms[i] = lb.Member{Endpoint: lb.NewEndpoint(lb.EndpointConfig{ID: name(i)}), Weight: 1}
		if mixed {
			ms[i].Weight = 1 + rng.IntN(lb.MaxWeight)
		}
	}
	return ms
}

// BenchmarkVerdict is an endpoint going down and coming back.
func BenchmarkVerdict(b *testing.B) {
	for _, p := range lb.Policies() {
		b.Run(fmt.Sprintf("policy=%v/endpoints=10000", p), func(b *testing.B) {
			r := newRig(b, lb.Config{Policy: p}, plain(10_000)...)
			for i := 0; b.Loop(); i++ {
				e := r.endpoints[i*7919%10_000]
				e.SetHealthy(false)
				e.SetHealthy(true)
			}
		})
	}
}
