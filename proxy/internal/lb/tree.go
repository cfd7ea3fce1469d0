package lb

import (
	"math"
	"math/bits"
	"sync/atomic"
)

// A tree is a tournament of scores, the least of which wins: the best among 10,000 is found in
// 14 steps, and a score that changes is passed up in as many at most.
//
// A node has the least of its children's scores, and the sum of the weights of the leaves that
// have it, so that one of them can be drawn by weight. A goroutine that writes to a node looks
// at the children again after it, and goes on to the parent: so when no goroutine is at work
// any more every node is right, and until then a pick may take the second best.
type tree struct {
	members int
	leaves  int             // a power of two
	nodes   []atomic.Uint64 // score<<32 | weight of the leaves that have it
	shift   int             // of weights, so that those of all leaves fit into 32 bits
}

// weightMask is the weight of a node.
const weightMask = 1<<32 - 1

// infinite is the score of those that cannot be had: +Inf as a float32. Floats that
// are not negative are ordered like their bits.
const infinite = 0x7f800000

// noEndpoint is a node none of whose leaves can be had.
const noEndpoint = infinite << 32

func newTree(n int) *tree {
	t := &tree{members: n, leaves: 1}
	for t.leaves < n {
		t.leaves *= 2
	}
	t.shift = max(bits.Len64(uint64(t.leaves)*MaxWeight*whole)-32, 0)
	t.nodes = make([]atomic.Uint64, 2*t.leaves)
	for i := range t.nodes {
		t.nodes[i].Store(noEndpoint)
	}
	return t
}

// score is the endpoint's sessions for its weight, so that all that are idle are equal, and
// the weight that it has at this moment, in parts of whole.
//
// The weight that a slow start withholds counts as the same part of a session: an endpoint
// with no session and a tenth of its weight counts as loaded as others with nine. Without that
// it would be the least loaded of all, and filled at once, wherever there are no more than a
// few sessions for each endpoint.
func (e *Endpoint) score(slowStart int64) (score uint32, weight uint64) {
	ramp := e.ramp(slowStart)
	weight = uint64(e.weight.Load()) * ramp
	if weight == 0 || !e.CanAcquire() {
		return infinite, 0
	}
	return math.Float32bits(float32(uint64(e.Active())*whole+whole-ramp) / float32(weight)), weight
}

// update brings a member's leaf up to date, and the nodes above it.
func (t *tree) update(i int, e *Endpoint, slowStart int64) {
	i += t.leaves
	changed := t.write(i, func() uint64 {
		if s, weight := e.score(slowStart); s != infinite {
			return uint64(s)<<32 | max(weight>>t.shift, 1)
		}
		return noEndpoint
	})
	for i /= 2; changed && i > 0; i /= 2 {
		changed = t.write(i, func() uint64 { return least(t.nodes[2*i].Load(), t.nodes[2*i+1].Load()) })
	}
}

// write makes a node equal to the result of a function, for as long as that changes, and
// reports whether it was different.
func (t *tree) write(i int, what func() uint64) (changed bool) {
	for {
		now := what()
		if t.nodes[i].Load() == now {
			return changed
		}
		t.nodes[i].Store(now)
		changed = true
	}
}

// least joins two nodes.
func least(l, r uint64) uint64 {
	switch {
	case l>>32 < r>>32:
		return l
	case r>>32 < l>>32:
		return r
	}
	return l + r&weightMask
}

// best draws one of the members that have the least score, by weight, or returns -1.
func (t *tree) best(random uint64) int {
	root := t.nodes[1].Load()
	if root == noEndpoint {
		return -1
	}
	k := (random >> 32) * (root & weightMask) >> 32 // which one of them, in order
	i := 1
	for i < t.leaves {
		l, r := t.nodes[2*i].Load(), t.nodes[2*i+1].Load()
		i *= 2
		switch n := l & weightMask; {
		case r>>32 < l>>32:
			i++
		case r>>32 == l>>32 && k >= n:
			k -= n
			i++
		}
	}
	if i -= t.leaves; i >= t.members {
		return -1 // another goroutine was at work above
	}
	return i
}

// untried returns the member below a node that has the least score, if that is less than
// bound, of those that this client has not tried. It goes into both children only on the way
// to a tried one. Among equals it draws by weight, with random.
func (t *tree) untried(endpoints []*Endpoint, p *pick, node int, bound, random uint64) (i int, score uint64) {
	score = t.nodes[node].Load() >> 32
	if score >= bound {
		return -1, bound
	}
	if node >= t.leaves {
		if i = node - t.leaves; i >= len(endpoints) || p.tried(endpoints[i]) {
			return -1, bound
		}
		return i, score
	}
	first, second := 2*node, 2*node+1
	a, b := t.nodes[first].Load(), t.nodes[second].Load()
	if b>>32 < a>>32 || b>>32 == a>>32 && (random>>32)*(a&weightMask+b&weightMask)>>32 >= a&weightMask {
		first, second = second, first
	}
	random = mix(random)
	i, score = t.untried(endpoints, p, first, bound, random)
	if other, s := t.untried(endpoints, p, second, score, random); other >= 0 {
		return other, s
	}
	return i, score
}
