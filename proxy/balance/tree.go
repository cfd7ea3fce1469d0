package balance

import (
	"math"
	"sync/atomic"
)

// A tree is a tournament of scores, the least of which wins: the one that is looked
// for among 10,000 is found in 14 steps, and a score that changes is passed up in as
// many at most.
//
// A node has the least of its children's scores, and how many leaves have it, so that
// one of them can be drawn and each is as likely as any other. Whoever writes to a
// node looks at the children again after it, and goes on to the parent: so when nobody
// is at work any more every node is right, and until then a pick may take the second
// best.
type tree struct {
	members int
	leaves  int             // a power of two
	nodes   []atomic.Uint64 // score<<32 | leaves that have it
}

// infinite is the score of those that cannot be had: +Inf as a float32. Floats that
// are not negative are ordered like their bits.
const infinite = 0x7f800000

// nobody is a node none of whose leaves can be had.
const nobody = infinite << 32

func newTree(n int) *tree {
	t := &tree{members: n, leaves: 1}
	for t.leaves < n {
		t.leaves *= 2
	}
	t.nodes = make([]atomic.Uint64, 2*t.leaves)
	for i := range t.nodes {
		t.nodes[i].Store(nobody)
	}
	return t
}

// score is the load that the endpoint would have with one more session, for its
// weight.
func (e *Endpoint) score(slowStart int64) uint32 {
	if !e.open() {
		return infinite
	}
	weight := float32(e.weight.Load()) * float32(e.ramp(slowStart)) / full
	return math.Float32bits(float32(e.load()+1) / weight)
}

// update brings a member's leaf up to date, and what is above it.
func (t *tree) update(i int, e *Endpoint, slowStart int64) {
	i += t.leaves
	changed := t.write(i, func() uint64 {
		if s := e.score(slowStart); s != infinite {
			return uint64(s)<<32 | 1
		}
		return nobody
	})
	for i /= 2; changed && i > 0; i /= 2 {
		changed = t.write(i, func() uint64 { return least(t.nodes[2*i].Load(), t.nodes[2*i+1].Load()) })
	}
}

// write makes a node what it is to be, for as long as that changes, and reports
// whether it was not.
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
	return l + r&(1<<32-1)
}

// best draws one of the members that have the least score, or returns -1.
func (t *tree) best(of []*Endpoint, p *pick, random uint64) int {
	root := t.nodes[1].Load()
	if root == nobody {
		return -1
	}
	k := (random >> 32) * (root & (1<<32 - 1)) >> 32 // which one of them, in order
	i := 1
	for i < t.leaves {
		l, r := t.nodes[2*i].Load(), t.nodes[2*i+1].Load()
		i *= 2
		switch n := l & (1<<32 - 1); {
		case r>>32 < l>>32:
			i++
		case r>>32 == l>>32 && k >= n:
			k -= n
			i++
		}
	}
	if i -= t.leaves; i < len(of) && p.tried(of[i]) {
		i, _ = t.untried(of, p, 1, infinite, random)
	}
	if i >= len(of) {
		return -1 // somebody was at work above
	}
	return i
}

// untried returns the member below a node that has the least score, if that is less
// than bound, of those that this client has not tried. It goes into both children
// only on the way to one that was. Among equals it prefers whom random says.
func (t *tree) untried(of []*Endpoint, p *pick, node int, bound, random uint64) (i int, score uint64) {
	score = t.nodes[node].Load() >> 32
	if score >= bound {
		return -1, bound
	}
	if node >= t.leaves {
		if i = node - t.leaves; i >= len(of) || p.tried(of[i]) {
			return -1, bound
		}
		return i, score
	}
	first, second := 2*node, 2*node+1
	a, b := t.nodes[first].Load()>>32, t.nodes[second].Load()>>32
	if b < a || b == a && random&1 != 0 {
		first, second = second, first
	}
	i, score = t.untried(of, p, first, bound, random>>1)
	if other, s := t.untried(of, p, second, score, random>>1); other >= 0 {
		return other, s
	}
	return i, score
}
