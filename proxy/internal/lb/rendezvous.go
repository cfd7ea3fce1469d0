package lb

import "math"

// rendezvous fills a table by weighted rendezvous hashing: each slot belongs to the endpoint
// with the best score for it, and a score depends on nothing but the slot, the endpoint and
// its weight. So an endpoint that comes or goes, or whose weight changes, moves no slot
// between any two others.
//
// To compare all endpoints for each slot would take thirteen billion scores for ten thousand.
// Instead each throws balls: the kth, at about the time k/weight, falls into a slot by a hash,
// and a slot belongs to the endpoint that hits it first. A weight is the rate of throwing, so
// the chance to be first is in proportion to it. When all slots have been hit, later balls do
// not count: about size*ln(size) balls.
func rendezvous(members []*Endpoint, weights []int, size int) []uint32 {
	sum := 0
	for _, w := range weights {
		sum += w
	}
	if sum == 0 {
		return nil
	}
	r := rendezvousFill{size: uint64(size), hit: make([]uint64, size), owner: make([]uint32, size), thrown: make([]uint64, len(members)), final: make([]uint64, (size+63)/64)}
	for i := range r.hit {
		r.hit[i] = math.MaxUint64
	}
	round := uint64(float64(second) * float64(size) / float64(sum)) // in which as many balls are thrown as there are slots
	for until := round; ; until += round {
		for i, e := range members {
			if weights[i] > 0 {
				r.throw(uint32(i), e.hash, second/uint64(weights[i]), until)
			}
		}
		if r.settle(until) {
			return r.owner
		}
	}
}

// second is the time in which an endpoint of weight 1 throws one ball.
const second uint64 = 1 << 32

// A rendezvousFill is a table that is being filled.
type rendezvousFill struct {
	size   uint64
	hit    []uint64 // when, by slot
	owner  []uint32
	thrown []uint64 // by member
	final  []uint64 // bits of the slots whose owner is certain: they fit into a cache where the others do not
}

// throw throws at least all of a member's balls up to a time, one at some moment of
// each interval.
func (r *rendezvousFill) throw(who uint32, hash, interval, until uint64) {
	k := r.thrown[who]
	for ; k*interval <= until; k++ {
		h := mix(hash + k*golden)
		slot := reduce(h, r.size)
		if r.final[slot/64]>>(slot%64)&1 != 0 {
			continue
		}
		if at := k*interval + h&(second-1)*interval/second; at < r.hit[slot] {
			r.hit[slot], r.owner[slot] = at, who
		}
	}
	r.thrown[who] = k
}

// settle notes that all balls up to a time were thrown, so that slots that were hit by then
// are final, and reports whether these are all slots.
func (r *rendezvousFill) settle(until uint64) (all bool) {
	all = true
	for slot, at := range r.hit {
		if at <= until {
			r.final[slot/64] |= 1 << (slot % 64)
		} else {
			all = false
		}
	}
	return all
}
