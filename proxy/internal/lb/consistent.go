package lb

import (
	"math"
	"math/bits"
	"slices"
	"sync/atomic"

	"github.com/zeebo/xxh3"
)

// probes is the number of slots that a pick looks at. Each look may cost a cache miss. If a pick would need more, few
// endpoints are usable.
const probes = 64

// consistent takes the owner of the client's slot. If the owner cannot be acquired, it takes the owner of the next
// slot in a sequence that depends only on the client and meets every slot in the end. So all nodes with the same view
// of the endpoints take the same endpoint. If an endpoint fails, its clients are spread over all the others, and no
// other client moves.
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

// begun reports whether an endpoint in slow start already takes this client: at first it takes few clients, then more
// and more, and keeps each of them.
func (t *tier) begun(p *pick, e *Endpoint) bool {
	r := e.ramp(int64(t.set.cfg.SlowStart))
	return r == whole || mix(p.hash^e.hash)&(whole-1) < r
}

// nearest takes the endpoint with the best score for the client among the endpoints that can be acquired. So nodes
// agree even if nearly all endpoints are unusable.
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
	return t.from(0, p) // other goroutines are quicker: take any endpoint
}

// perEndpoint is the least number of slots per endpoint in a table. With so many, the shares of two endpoints differ
// by at most a hundredth ("Maglev: A Fast and Reliable Software Network Load Balancer", NSDI 2016, section 3.4).
const perEndpoint = 100

// tableSizes are prime numbers. The first two are from the paper.
var tableSizes = []int{65537, 655373, 1310759, 2621527, 5243059, 10486163, 20972351, 41944733}

// tableSize returns the size of the table for a number of endpoints. When a tier grows past a size, first from 655
// endpoints to 656, nearly all clients move. A constant size would avoid this, but two endpoints would need the table
// for ten thousand.
func tableSize(endpoints int) int {
	i, _ := slices.BinarySearch(tableSizes, endpoints*perEndpoint)
	return tableSizes[min(i, len(tableSizes)-1)]
}

// A preference is the order in which a member prefers the slots of a table.
type preference struct{ at, skip uint32 }

func (o *preference) next(size int) {
	if o.at += o.skip; o.at >= uint32(size) {
		o.at -= uint32(size)
	}
}

// maglev fills a table of prime size as in the paper: each endpoint prefers the slots in its own order, a
// permutation, and the endpoints take turns in taking their first free slot. If weights differ, the turns follow the
// schedule.
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
	taken := make([]uint64, (size+63)/64) // bits, which fit into a cache when the table does not
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

// rendezvous fills a table by weighted rendezvous hashing: each slot belongs to the endpoint with the best score for
// it, and a score depends only on the slot, the endpoint and its weight. So if an endpoint comes, goes or changes its
// weight, no slot moves between two other endpoints.
//
// To compare all endpoints for each slot, ten thousand endpoints would need thirteen billion scores. Instead each
// endpoint throws balls: the kth, at about the time k/weight, falls into a slot by a hash, and a slot belongs to the
// endpoint that hits it first. A weight is the rate of throwing, so the chance to be first is in proportion to it.
// Once all slots have been hit, later balls do not count. This takes about size*ln(size) balls.
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
	round := uint64(float64(second) * float64(size) / float64(sum)) // time in which as many balls are thrown as there are slots
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
	hit    []uint64 // time of the first hit, by slot
	owner  []uint32
	thrown []uint64 // by member
	final  []uint64 // bits of the slots with a final owner, which fit into a cache when the other slices do not
}

// throw throws at least all of a member's balls up to a time, one ball in each interval.
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

// settle notes that all balls up to a time were thrown: slots hit before are final. It reports whether all slots are.
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

// KeyOf returns the [Request.Key] of a text. It is the same on every node, and 0 only for the empty text.
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

// keep makes i a member as long as want returns true. It asks want again after writing, so among concurrent calls the
// last writer sees the present state.
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

// count returns the number of members.
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
