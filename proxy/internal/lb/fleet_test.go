package lb_test

import (
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/proxy/internal/lb"
)

// A fleet is the object of the simulation: proxy nodes that know nothing of each other,
// in front of the same endpoints. Time goes in steps. In each some sessions end and as
// many begin, a few endpoints go or come, and a few nodes are replaced by fresh ones,
// which get all their clients at once. At a third of the time a tenth of the endpoints
// goes, at two thirds as many new ones come.
type fleet struct {
	nodes, endpoints, sessions, steps int
	churn                             int     // endpoints that go, or come, in a step
	replaced                          float64 // part of the nodes, in a step
	ended                             float64 // part of the sessions, in a step
	lag                               int     // steps after which a node has heard of a change, at most
}

// A change is which endpoints of the universe go and come at the beginning of a step.
type change struct{ gone, come []int }

func (f *fleet) tenth() int { return f.endpoints / 10 }

// life returns the changes by step, the number of endpoints in all of time, and those
// that come at two thirds of it.
func (f *fleet) life() (changes []change, universe int, late []int) {
	rng := rand.New(rand.NewPCG(11, 12))
	var alive []int
	for i := range f.endpoints {
		alive = append(alive, i)
	}
	universe = f.endpoints
	changes = make([]change, f.steps)
	for t := 1; t < f.steps; t++ {
		c := &changes[t]
		out, in := f.churn, 0
		if t%2 == 0 {
			out, in = 0, f.churn
		}
		switch t {
		case f.steps / 3:
			out, in = f.tenth(), 0
		case 2 * f.steps / 3:
			out, in = 0, f.tenth()
		}
		for range out {
			k := rng.IntN(len(alive))
			c.gone = append(c.gone, alive[k])
			alive = slices.Delete(alive, k, k+1)
		}
		for range in {
			c.come = append(c.come, universe)
			alive = append(alive, universe)
			universe++
		}
		if t == 2*f.steps/3 {
			late = c.come
		}
	}
	return changes, universe, late
}

// presence returns, for each step, which endpoints are there.
func presence(changes []change, first, universe int) [][]bool {
	now := make([]bool, universe)
	for i := range first {
		now[i] = true
	}
	var by [][]bool
	for _, c := range changes {
		for _, i := range c.gone {
			now[i] = false
		}
		for _, i := range c.come {
			now[i] = true
		}
		by = append(by, slices.Clone(now))
	}
	return by
}

// A node is one proxy with its own endpoints, that is, its own idea of them.
type node struct {
	set       *lb.Set
	endpoints []*lb.Endpoint
	failures  []int          // in a row, by endpoint
	alive     []*lb.Endpoint // whose session it is
	clock     *atomic.Int64
}

// index returns which endpoint of the universe it is.
func index(e *lb.Endpoint) int { return e.Of.(int) }

// step is how long one takes by a node's clock.
const step = int64(time.Second)

var allNames []string

// namesOf returns the names of the first n endpoints.
func namesOf(n int) []string {
	for i := len(allNames); i < n; i++ {
		allNames = append(allNames, name(i))
	}
	return allNames[:n]
}

func (f *fleet) newNode(cfg *lb.Config, present []bool, at int) *node {
	n := &node{failures: make([]int, len(present)), clock: new(atomic.Int64)}
	n.clock.Store(int64(at+1) * step)
	names := namesOf(len(present))
	var ms []lb.Member
	for i, here := range present {
		e := lb.NewEndpoint(lb.EndpointConfig{ID: names[i], Now: n.clock.Load, Of: i})
		e.SetDraining(!here)
		n.endpoints = append(n.endpoints, e)
		ms = append(ms, lb.Member{Endpoint: e, Weight: 1})
	}
	n.set = lb.NewSet(ms, cfg, nil)
	n.set.Attach()
	return n
}

// hear applies a change to the node.
func (n *node) hear(c change) {
	for _, i := range c.gone {
		n.endpoints[i].SetDraining(true)
	}
	for _, i := range c.come {
		n.endpoints[i].Added()
		n.endpoints[i].SetDraining(false)
	}
}

// trim ends the sessions of endpoints that are gone, and a part of the others.
func (n *node) trim(present []bool, part float64, rng *rand.Rand) {
	n.alive = slices.DeleteFunc(n.alive, func(e *lb.Endpoint) bool {
		if present[index(e)] && rng.Float64() >= part {
			return false
		}
		e.Release()
		return true
	})
}

// inARow is the number of failures in a row that have an endpoint ejected, as outlier
// detection does by default.
const inARow = 5

// fill begins sessions until there are so many. An endpoint that is gone, which the
// node has not heard yet, refuses, and another one is tried. It returns how many did.
func (n *node) fill(sessions int, present []bool) (refused int) {
	var tried [8]*lb.Endpoint
	for len(n.alive) < sessions {
		req := lb.Request{Tried: tried[:0]}
		for {
			e, err := n.set.Pick(&req)
			if err != nil {
				panic(err) // nine tenths are there, and have no limits
			}
			if present[index(e)] {
				n.alive = append(n.alive, e)
				break
			}
			e.Release()
			refused++
			req.Tried = append(req.Tried, e)
			if n.failures[index(e)]++; n.failures[index(e)] == inARow {
				e.SetEjected(true)
			}
		}
	}
	return refused
}

// An outcome is the result of a policy: sessions of all nodes by step and endpoint, and
// attempts at endpoints that were gone by step.
type outcome struct {
	load    [][]int
	refused []int
}

// run lets all nodes live, one after the other: they do not know of each other.
func (f *fleet) run(cfg *lb.Config) *outcome {
	changes, universe, _ := f.life()
	present := presence(changes, f.endpoints, universe)
	out := &outcome{refused: make([]int, f.steps)}
	for range f.steps {
		out.load = append(out.load, make([]int, universe))
	}
	for i := range f.nodes {
		f.live(cfg, i, changes, present, out)
	}
	return out
}

func (f *fleet) live(cfg *lb.Config, i int, changes []change, present [][]bool, out *outcome) {
	rng := rand.New(rand.NewPCG(uint64(i), 13))
	lag := rng.IntN(f.lag + 1)
	n := f.newNode(cfg, present[0], 0)
	for t := range f.steps {
		n.clock.Store(int64(t+1) * step)
		if rng.Float64() < f.replaced {
			n = f.newNode(cfg, present[max(t-lag, 0)], t)
		} else if t-lag > 0 {
			n.hear(changes[t-lag])
		}
		n.trim(present[t], f.ended, rng)
		out.refused[t] += n.fill(f.sessions, present[t])
		for _, e := range n.alive {
			out.load[t][index(e)]++
		}
	}
}

// spread returns, by step, the load of the busiest endpoint that is there, as a
// multiple of the mean.
func (f *fleet) spread(load [][]int, present [][]bool) []float64 {
	var by []float64
	for t := range load {
		most, sum, n := 0, 0, 0
		for i, l := range load[t] {
			if present[t][i] {
				most, sum, n = max(most, l), sum+l, n+1
			}
		}
		by = append(by, float64(most)*float64(n)/float64(sum))
	}
	return by
}

// share returns, by step, the mean load of some endpoints as a multiple of that of all.
func (f *fleet) share(load [][]int, present [][]bool, some []int) []float64 {
	var by []float64
	for t := range load {
		sum, n, mine, m := 0, 0, 0, 0
		for i, l := range load[t] {
			if present[t][i] {
				sum, n = sum+l, n+1
			}
		}
		for _, i := range some {
			if present[t][i] {
				mine, m = mine+load[t][i], m+1
			}
		}
		by = append(by, float64(mine)/float64(max(m, 1))*float64(n)/float64(sum))
	}
	return by
}
