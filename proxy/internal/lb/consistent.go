package lb

import (
	"math"
	"math/bits"
	"sync/atomic"

	"github.com/zeebo/xxh3"
)

// probes is the number of slots that are looked at. Each may cost a cache miss, and a pick
// that would need more has few endpoints to choose from.
const probes = 64

// consistent takes the owner of the client's slot or, if that cannot be had, of the
// next slot in a sequence that depends on the client alone, and in the end meets
// every slot. So every node that thinks the same of the endpoints takes the same one;
// clients of others stay where they are, and those of one that has failed are spread
// over all.
func (t *tier) consistent(p *pick) *Endpoint {
	plan := t.plan
	size := uint64(len(plan.table))
	if size == 0 {
		return nil
	}
	at := reduce(p.hash, size)
	step := 1 + reduce(mix(p.hash+golden), size-1)
	for range probes {
		if who := plan.table[at]; t.may(who, p) {
			if e := t.members[who]; t.begun(p, e) && p.take(e) {
				return e
			}
		}
		if at += step; at >= size {
			at -= size
		}
	}
	return nil
}

// begun reports whether an endpoint that is in slow start takes this client already:
// first few, then more and more, each of which stays.
func (t *tier) begun(p *pick, e *Endpoint) bool {
	r := e.ramp(int64(t.set.cfg.SlowStart))
	return r == whole || mix(p.hash^e.hash)&(whole-1) < r
}

// nearest takes the endpoint with the best score for the client among those that can be had:
// so nodes agree also where nearly all are unusable.
func (t *tier) nearest(p *pick) *Endpoint {
	for range 4 {
		var best *Endpoint
		var score uint64
		for i := t.open.next(0); i >= 0; i = t.open.next(i + 1) {
			e := t.members[i]
			if s := mix(p.hash ^ e.hash); (best == nil || s > score) && !p.tried(e) {
				best, score = e, s
			}
		}
		if best == nil || best.acquire(p.excluded) {
			return best
		}
	}
	return t.from(0, p) // others are quicker: any endpoint that is left
}

// perEndpoint is how many slots an endpoint has in a table, at least: with so many
// none has more than a hundredth more than another ("Maglev: A Fast and Reliable
// Software Network Load Balancer", NSDI 2016, section 3.4).
const perEndpoint = 100

// Prime numbers, the first two of them the paper's.
var tableSizes = []int{65537, 655373, 1310759, 2621527, 5243059, 10486163, 20972351, 41944733}

// tableSize returns the size of the table for so many endpoints. Where a tier grows
// from one size to the next, from 655 endpoints to 656 for the first time, nearly all
// clients move: a size that never changes would be as large for two endpoints as for
// ten thousand.
func tableSize(endpoints int) int {
	for _, size := range tableSizes {
		if size/perEndpoint >= endpoints {
			return size
		}
	}
	return tableSizes[len(tableSizes)-1]
}

// A preference is in which a member prefers the slots of a table.
type preference struct{ at, skip uint32 }

func (o *preference) next(size int) {
	if o.at += o.skip; o.at >= uint32(size) {
		o.at -= uint32(size)
	}
}

// maglev fills a table whose size is prime as the paper says: each endpoint prefers
// the slots in an order of its own, a permutation, and they take turns to take the
// first that is free. Where weights differ, turns are those of the schedule.
func maglev(members []*Endpoint, weights []int, size int) []uint32 {
	turns := schedule(weights)
	if len(turns) == 0 {
		return nil
	}
	orders := make([]preference, len(members))
	for i, e := range members {
		orders[i] = preference{uint32(reduce(mix(e.hash), uint64(size))), 1 + uint32(reduce(mix(e.hash+golden), uint64(size-1)))}
	}
	table := make([]uint32, size)
	taken := make([]uint64, (size+63)/64) // bits: they fit into a cache where the table does not
	for filled, turn := 0, 0; filled < size; filled++ {
		who := turns[turn]
		if turn++; turn == len(turns) {
			turn = 0
		}
		o := &orders[who]
		for taken[o.at/64]>>(o.at%64)&1 != 0 {
			o.next(size)
		}
		taken[o.at/64] |= 1 << (o.at % 64)
		table[o.at] = who
	}
	return table
}

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

// mix is the finalizer of MurmurHash3 as improved by Stafford (mix13), a bijection.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// reduce maps a hash to [0, n) without a division.
func reduce(x, n uint64) uint64 {
	hi, _ := bits.Mul64(x, n)
	return hi
}

// KeyOf returns the [Request.Key] of a text: the same for the same text on every node, and 0 for the empty one alone.
func KeyOf(text string) uint64 {
	if text == "" {
		return 0
	}
	if h := xxh3.HashString(text); h != 0 {
		return h
	}
	return 1
}

// A bitmap is a set of small numbers that several goroutines change.
type bitmap []atomic.Uint64

func newBitmap(n int) bitmap { return make(bitmap, (n+63)/64) }

func (b bitmap) has(i int) bool { return b[i/64].Load()>>(i%64)&1 != 0 }

func (b bitmap) add(i int)    { b[i/64].Or(1 << (i % 64)) }
func (b bitmap) remove(i int) { b[i/64].And(^uint64(1 << (i % 64))) }

// keep makes i a member for as long as want returns true. It looks again after writing: of
// several concurrent calls the last one to write sees the present state.
func (b bitmap) keep(i int, want func() bool) {
	for {
		now := want()
		if now == b.has(i) {
			return
		}
		if now {
			b.add(i)
		} else {
			b.remove(i)
		}
	}
}

// next returns the least member from i on, or -1.
func (b bitmap) next(i int) int {
	if i/64 >= len(b) {
		return -1
	}
	if w := b[i/64].Load() >> (i % 64); w != 0 {
		return i + bits.TrailingZeros64(w)
	}
	for k := i/64 + 1; k < len(b); k++ {
		if w := b[k].Load(); w != 0 {
			return k*64 + bits.TrailingZeros64(w)
		}
	}
	return -1
}

// around returns the least member from i on, and then from 0 on, or -1.
func (b bitmap) around(i int) int {
	if n := b.next(i); n >= 0 {
		return n
	}
	return b.next(0)
}

// count returns how many members there are.
func (b bitmap) count() int {
	n := 0
	for k := range b {
		n += bits.OnesCount64(b[k].Load())
	}
	return n
}

// at returns the kth member, counted from 0, or -1.
func (b bitmap) at(k int) int {
	for i := range b {
		w := b[i].Load()
		if c := bits.OnesCount64(w); k >= c {
			k -= c
			continue
		}
		for ; k > 0; k-- {
			w &= w - 1
		}
		return i*64 + bits.TrailingZeros64(w)
	}
	return -1
}
