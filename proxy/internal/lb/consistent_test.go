package lb_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/penstock/penstock/proxy/internal/lb"
)

// keyed are the policies that choose by the client.
var keyed = slices.DeleteFunc(lb.Policies(), func(p lb.Policy) bool { return !p.Keyed() })

func eachKeyed(t *testing.T, f func(t *testing.T, p lb.Policy)) {
	for _, p := range keyed {
		t.Run(p.String(), func(t *testing.T) { f(t, p) })
	}
}

// owners returns the IDs of the endpoints to which each of n clients is sent.
func owners(t testing.TB, s *lb.Set, n int) []string {
	t.Helper()
	ids := make([]string, n)
	for i := range ids {
		req := client(i)
		e, err := s.Pick(&req)
		if err != nil {
			t.Fatalf("client %d: %v", i, err)
		}
		e.Release()
		ids[i] = e.ID()
	}
	return ids
}

func differ(a, b []string) (n int) {
	for i := range a {
		if a[i] != b[i] {
			n++
		}
	}
	return n
}

// setOf returns an attached set of endpoints of these IDs, in any order.
func setOf(p lb.Policy, weights map[string]int) *lb.Set {
	var ms []lb.Member
	for id, w := range weights {
		ms = append(ms, lb.Member{Endpoint: lb.NewEndpoint(lb.EndpointConfig{ID: id}), Weight: w})
	}
	rand.Shuffle(len(ms), func(i, j int) { ms[i], ms[j] = ms[j], ms[i] })
	s := lb.NewSet(ms, &lb.Config{Policy: p}, nil)
	s.Attach()
	return s
}

func named(n int) map[string]int {
	m := make(map[string]int)
	for i := range n {
		m[name(i)] = 1
	}
	return m
}

// The mapping must be the same on nodes of different versions: it must not change by
// accident.
func TestMappingIsFixed(t *testing.T) {
	want := map[lb.Policy]uint64{lb.Maglev: 0x2b0201d2f960d16b, lb.SourceIP: 0x84573d00bd6a213d}
	eachKeyed(t, func(t *testing.T, p lb.Policy) {
		weights := named(20)
		weights[name(3)] = 5
		var sum uint64
		for _, id := range owners(t, setOf(p, weights), 20000) {
			for _, c := range []byte(id) {
				sum = lb.Mix(sum + uint64(c))
			}
		}
		if sum != want[p] {
			t.Errorf("the mapping's digest is %#x, want %#x: nodes of another version disagree", sum, want[p])
		}
	})
}

// Slots are in proportion to weights: in a Maglev table nearly exactly, in a
// rendezvous table as a draw of so many slots is.
func TestTablesFollowWeights(t *testing.T) {
	eachKeyed(t, func(t *testing.T, p lb.Policy) {
		weights := named(20)
		total := 0
		for i := range 20 {
			weights[name(i)] = 1 + 5*i
			total += 1 + 5*i
		}
		s := setOf(p, weights)
		counts := make([]int, 20)
		for _, i := range s.Table() {
			counts[i]++
		}
		for i, m := range s.Members() {
			want := float64(len(s.Table())) * float64(m.Weight) / float64(total)
			if off := math.Abs(float64(counts[i]) - want); p == lb.Maglev && off > 1 || off > 5*math.Sqrt(want) {
				t.Errorf("%s: weight %d of %d has %d slots, want %.0f", m.Endpoint.ID(), m.Weight, total, counts[i], want)
			}
		}
	})
}

// With source_ip, nothing moves between two endpoints that both stay as they are. A
// slot that moves leaves an endpoint that goes or loses weight, or comes to one that is
// new or gains.
func TestSourceIPDisruptsNoOther(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		const size = 1009
		n := rapid.IntRange(2, 12).Draw(rt, "endpoints")
		weights := rapid.SliceOfN(rapid.IntRange(0, 6), n, n)
		before, after := weights.Draw(rt, "before"), weights.Draw(rt, "after")
		before[0], after[0] = 1, 1 // there is always an endpoint
		members := endpointsNamed(n)
		a, b := lb.RaceFor(members, before, size), lb.RaceFor(members, after, size)
		for slot, was := range a {
			if is := b[slot]; is != was && after[was] >= before[was] && after[is] <= before[is] {
				rt.Fatalf("slot %d moved from endpoint %d (weight %d to %d) to %d (%d to %d)",
					slot, was, before[was], after[was], is, before[is], after[is])
			}
		}
	})
}

// An endpoint that is down has its clients sent elsewhere, spread over all others. No
// other client moves, and all nodes agree on the endpoints. When the endpoint is back,
// so are its clients.
func TestUnhealthyOwnersAreSkipped(t *testing.T) {
	eachKeyed(t, func(t *testing.T, p lb.Policy) {
		const n, clients = 20, 4000
		a, b := setOf(p, named(n)), setOf(p, named(n))
		before := owners(t, a, clients)
		ill := []string{name(3), name(11)}
		health := func(healthy bool) {
			for _, s := range []*lb.Set{a, b} {
				for _, m := range s.Members() {
					if slices.Contains(ill, m.Endpoint.ID()) {
						m.Endpoint.SetHealthy(healthy)
					}
				}
			}
		}
		health(false)
		during := owners(t, a, clients)
		if n := differ(during, owners(t, b, clients)); n > 0 {
			t.Errorf("nodes disagree on %d clients", n)
		}
		took := map[string]int{}
		for i := range before {
			switch was := slices.Contains(ill, before[i]); {
			case was:
				took[during[i]]++
			case before[i] != during[i]:
				t.Fatalf("client %d moved from %s, which is healthy", i, before[i])
			}
		}
		for id, n := range took {
			if share := clients / 20 * 2 / 18; n > 3*share || slices.Contains(ill, id) {
				t.Errorf("%s took %d clients, an even share is %d", id, n, share)
			}
		}
		if len(took) != n-2 {
			t.Errorf("%d endpoints took clients over, want %d", len(took), n-2)
		}
		health(true)
		if n := differ(before, owners(t, a, clients)); n > 0 {
			t.Errorf("%d clients did not come back", n)
		}
	})
}

// Where nearly all are unusable, nodes still agree, and those few share the clients.
// When one more fails, each remaining one keeps its own.
func TestNodesAgreeAmongFew(t *testing.T) {
	eachKeyed(t, func(t *testing.T, p lb.Policy) {
		const n, clients = 2000, 3000
		up := []string{name(10), name(700), name(1999)}
		sets := []*lb.Set{setOf(p, named(n)), setOf(p, named(n))}
		only := func(ids []string) {
			for _, s := range sets {
				for _, m := range s.Members() {
					m.Endpoint.SetHealthy(slices.Contains(ids, m.Endpoint.ID()))
				}
			}
		}
		only(up)
		before := owners(t, sets[0], clients)
		if n := differ(before, owners(t, sets[1], clients)); n > 0 {
			t.Errorf("nodes disagree on %d clients", n)
		}
		counts := map[string]int{}
		for _, id := range before {
			counts[id]++
		}
		for _, id := range up {
			near(t, id, float64(counts[id]), clients/3., 0.1)
		}
		only(up[:2])
		for i, id := range owners(t, sets[0], clients) {
			if before[i] != up[2] && id != before[i] {
				t.Fatalf("client %d moved from %s, which is healthy", i, before[i])
			}
		}
	})
}

// A client without an address is sent anywhere; a key stands in for the address.
func TestKeys(t *testing.T) {
	eachKeyed(t, func(t *testing.T, p lb.Policy) {
		r := newRig(t, lb.Config{Policy: p}, plain(10)...)
		for i, got := range r.many(5000) {
			if got < 350 || got > 650 {
				t.Errorf("endpoint %d has %d of 5000 clients without an address", i, got)
			}
		}
		a, b := client(1), client(2)
		a.Key, b.Key = 7, 7
		if r.one(&a) != r.one(&b) {
			t.Error("the same key, and other endpoints")
		}
	})
}

// TestKeyOf: the key of a text is fixed, so that nodes of different versions agree, and no text but the empty one has none.
func TestKeyOf(t *testing.T) {
	for text, want := range map[string]uint64{"": 0, "a": 0xe6c632b61e964e1f, "tenant-1.example": 0x489c49e9c652c0be} {
		if got := lb.KeyOf(text); got != want {
			t.Errorf("the key of %q is %#x, want %#x", text, got, want)
		}
	}
}

func equalWeights(n int) []int { return slices.Repeat([]int{1}, n) }

func endpointsNamed(n int) []*lb.Endpoint {
	es := make([]*lb.Endpoint, n)
	for i := range es {
		es[i] = lb.NewEndpoint(lb.EndpointConfig{ID: name(i)})
	}
	return es
}

// The paper's experiment on resilience: of 1,000 endpoints some fail at a time, the
// table is made again, and the entries that differ are counted. The price of evenness
// is the number of differing entries beyond those of the failed endpoints.
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
