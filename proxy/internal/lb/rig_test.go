package lb_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/internal/lb"
)

// A rig is a set with a clock and a random source of the test's.
type rig struct {
	*lb.Set
	t         testing.TB
	clock     *atomic.Int64
	endpoints []*lb.Endpoint
}

// member has its endpoint made by newRig, unless it has one.
type member struct {
	weight, limit int
	zone          string
	backup        bool
}

func plain(n int) []member {
	ms := make([]member, n)
	for i := range ms {
		ms[i].weight = 1
	}
	return ms
}

func name(i int) string { return fmt.Sprintf("10.%d.%d.%d:443", i>>16, i>>8&255, i&255) }

func newRig(t testing.TB, cfg lb.Config, members ...member) *rig {
	t.Helper()
	r := &rig{t: t, clock: new(atomic.Int64)}
	r.clock.Store(int64(time.Hour))
	var ms []lb.Member
	for i, m := range members {
		e := lb.NewEndpoint(lb.EndpointConfig{ID: name(i), Weight: 1, Now: r.clock.Load})
		r.endpoints = append(r.endpoints, e)
		ms = append(ms, lb.Member{Endpoint: e, Weight: m.weight, Connections: m.limit, Zone: m.zone, Backup: m.backup})
	}
	r.Set = lb.NewSet(ms, &cfg, nil)
	r.SetRandom(rand.New(rand.NewPCG(1, 2)).Uint64) // for one goroutine
	r.Attach()
	return r
}

// one picks for a client and returns whose index it got.
func (r *rig) one(req *lb.Request) int {
	r.t.Helper()
	e, err := r.Pick(req)
	if err != nil {
		r.t.Fatalf("Pick: %v", err)
	}
	for i, other := range r.endpoints {
		if other == e {
			return i
		}
	}
	r.t.Fatalf("Pick returned an endpoint that is not of the set: %s", e.ID())
	return -1
}

// many picks n times, releases at once, and returns how often each was picked.
func (r *rig) many(n int) []int {
	r.t.Helper()
	before := r.picked()
	var req lb.Request
	for range n {
		e, err := r.Pick(&req)
		if err != nil {
			r.t.Fatalf("Pick: %v", err)
		}
		e.Release()
	}
	after := r.picked()
	for i := range after {
		after[i] -= before[i]
	}
	return after
}

func (r *rig) picked() []int {
	counts := make([]int, len(r.endpoints))
	for i, e := range r.endpoints {
		counts[i] = int(e.Picked())
	}
	return counts
}

func client(i int) lb.Request {
	return lb.Request{Source: netip.AddrPortFrom(netip.AddrFrom4([4]byte{172, byte(i >> 16), byte(i >> 8), byte(i)}), 40000)}
}

// near fails the test unless got is want, give or take a part of it.
func near(t testing.TB, what string, got, want, part float64) {
	t.Helper()
	if got < want*(1-part) || got > want*(1+part) {
		t.Errorf("%s: %v, want %v within %v%%", what, got, want, part*100)
	}
}

// spreads reports whether a policy shares clients among all endpoints that have room. Other policies
// fill one endpoint before they use the next, and have no slow start.
func spreads(p lb.Policy) bool { return p != lb.First }

// each runs a test for each policy.
func each(t *testing.T, f func(t *testing.T, p lb.Policy)) {
	for _, p := range lb.Policies() {
		t.Run(p.String(), func(t *testing.T) { f(t, p) })
	}
}
