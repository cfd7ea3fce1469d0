package lb_test

import (
	"github.com/penstock/penstock/proxy/internal/lb"
)

// A history has, by step, the endpoint to which each of some clients belongs. All nodes
// that know all changes agree on it.
type history struct {
	owners [][]int32
	spread []float64 // the largest part of the table that an endpoint has, as a multiple of the mean
}

// history follows a consistent policy through a fleet's life.
func (f *fleet) history(p lb.Policy, clients int) *history {
	changes, universe, _ := f.life()
	h := new(history)
	for _, here := range presence(changes, f.endpoints, universe) {
		var ms []lb.Member
		for i := range here {
			if here[i] {
				e := lb.NewEndpoint(lb.EndpointConfig{ID: name(i), Of: i})
				ms = append(ms, lb.Member{Endpoint: e, Weight: 1})
			}
		}
		set := lb.NewSet(ms, &lb.Config{Policy: p}, nil)
		set.Attach()
		h.owners = append(h.owners, owned(set, clients))
		counts := make([]int, len(ms))
		most := 0
		for _, i := range set.Table() {
			counts[i]++
			most = max(most, counts[i])
		}
		h.spread = append(h.spread, float64(most)*float64(len(ms))/float64(len(set.Table())))
	}
	return h
}

func owned(set *lb.Set, clients int) []int32 {
	by := make([]int32, clients)
	for c := range by {
		req := client(c)
		e, err := set.Pick(&req)
		if err != nil {
			panic(err) // there are endpoints, and they have no limits
		}
		e.Release()
		by[c] = int32(e.Of.(int))
	}
	return by
}

// modulo is the history of a policy that takes the hash modulo the number of endpoints.
func (f *fleet) modulo(clients int) *history {
	changes, universe, _ := f.life()
	h := new(history)
	for _, here := range presence(changes, f.endpoints, universe) {
		var list []int32
		for i := range here {
			if here[i] {
				list = append(list, int32(i))
			}
		}
		by := make([]int32, clients)
		for c := range by {
			by[c] = list[lb.Mix(uint64(c)+1)%uint64(len(list))]
		}
		h.owners = append(h.owners, by)
	}
	return h
}

// moved returns the part of the clients whose owner differs from the one so many steps
// before.
func (h *history) moved(steps int) []float64 {
	by := make([]float64, len(h.owners))
	for t := steps; t < len(by); t++ {
		n := 0
		for c, who := range h.owners[t] {
			if who != h.owners[t-steps][c] {
				n++
			}
		}
		by[t] = float64(n) / float64(len(h.owners[t]))
	}
	return by
}

// ideal is the part that has to move: that of the endpoints that go, of all before, or
// that of the endpoints that come, of all after.
func (f *fleet) ideal() []float64 {
	changes, universe, _ := f.life()
	present := presence(changes, f.endpoints, universe)
	by := make([]float64, f.steps)
	for t := 1; t < f.steps; t++ {
		n := 0
		for _, here := range present[t] {
			if here {
				n++
			}
		}
		before := n + len(changes[t].gone) - len(changes[t].come)
		by[t] = float64(len(changes[t].gone))/float64(before) + float64(len(changes[t].come))/float64(n)
	}
	return by
}

// astray is the chance that a client that comes again through another node is sent to
// another endpoint, because one of the two nodes has not heard of a change yet: each
// has heard with a lag of its own from 0 to lag.
func (f *fleet) astray(h *history) float64 {
	sum, n := 0.0, 0
	for a := range f.lag + 1 {
		for b := range f.lag + 1 {
			apart := max(a, b) - min(a, b)
			for t, part := range h.moved(apart) {
				if apart > 0 && t < apart {
					continue
				}
				if apart == 0 {
					part = 0
				}
				sum, n = sum+part, n+1
			}
		}
	}
	return sum / float64(n)
}
