package lb

import (
	"math"
	"math/bits"
	"sync/atomic"
)

// turns is how many endpoints without room a policy passes over before it uses tier.any.
const turns = 256

// roundRobin takes the endpoint whose turn it is. The turns are a precomputed schedule, and one counter that all
// loops share. So the picks of all loops together are in exact proportion, at the cost of one atomic addition.
//
// If an endpoint has no room or is not usable, its turn passes. The client takes the next turn of the counter: if it
// took the next endpoint in the schedule, this endpoint would have twice as many turns. So the other endpoints keep
// their proportions.
func (t *tier) roundRobin(p *pick) *Endpoint {
	plan := t.plan
	if len(plan.schedule) == 0 {
		return nil
	}
	for range turns {
		who := plan.schedule[t.turn.Add(1)%uint64(len(plan.schedule))]
		if !t.may(who, p) {
			continue
		}
		if e := t.members[who]; t.ready(e) && p.take(e) {
			return e
		}
	}
	return nil
}

// may reports whether a member is worth a look: the bits of open endpoints fit into a cache, ten thousand endpoints
// do not.
func (t *tier) may(who uint32, p *pick) bool { return p.includesUnusable() || t.open.has(int(who)) }

// ready reports whether an endpoint takes part in a draw by weight. In slow start it does as often as its ramp says.
func (t *tier) ready(e *Endpoint) bool {
	r := e.ramp(int64(t.set.cfg.SlowStart))
	return r == whole || t.set.random()&(whole-1) < r
}

// seconds is how often randomTwo tries to draw a second endpoint. If nearly all are unusable, it takes the first.
const seconds = 16

// randomTwo draws two endpoints by weight, and takes the one with less load. Among equal endpoints it takes the
// first: weight counted in the draw, and must not count twice.
func (t *tier) randomTwo(p *pick) *Endpoint {
	plan := t.plan
	if len(plan.schedule) == 0 {
		return nil
	}
	var a *Endpoint
	for left := turns; left > 0; left-- {
		who := plan.schedule[reduce(t.set.random(), uint64(len(plan.schedule)))]
		if !t.may(who, p) {
			continue
		}
		b := t.members[who]
		if b == a || p.tried(b) || !hasRoom(b.word.Load(), b.limit.Load(), p.excluded) || !t.ready(b) {
			continue
		}
		if a == nil {
			a, left = b, min(left, seconds)
			continue
		}
		if t.lighter(b, a) {
			a, b = b, a
		}
		if a.acquire(p.excluded) {
			return a
		}
		a = b
	}
	if a != nil && a.acquire(p.excluded) {
		return a
	}
	return nil
}

// lighter reports whether a has fewer sessions for its weight than b.
func (t *tier) lighter(a, b *Endpoint) bool {
	slow := int64(t.set.cfg.SlowStart)
	return uint64(a.Active())*uint64(b.weight.Load())*b.ramp(slow) < uint64(b.Active())*uint64(a.weight.Load())*a.ramp(slow)
}

// schedule returns the order of turns, as indexes of weights. Each endpoint has as many turns as its weight, without
// common factors, spread as evenly as possible.
//
// Endpoints of the same weight are a class, and take turns within it. There are at most 256 classes, which are
// interleaved by proportionate fair scheduling (Baruah and others, 1996): if a class has p of n turns, its kth turn
// is due between k*n/p and (k+1)*n/p, and among the turns that are due the one with the earliest end comes first. So
// no class is ever a whole turn before or behind its share. This takes little longer than writing the result down;
// the smooth round robin of nginx would compare all endpoints for each turn.
func schedule(weights []int) []uint32 {
	classes, length := classify(weights)
	due := make(edfHeap, 0, len(classes))
	later := make([]uint16, length+1) // by the time when a turn begins to be due: the last class with such a turn, counted from 1
	for i := range classes {
		classes[i].next, later[0] = later[0], uint16(i+1)
	}
	turns := make([]uint32, 0, length)
	for now := range length {
		for k := later[now]; k > 0; k = classes[k-1].next {
			due = due.push(classes[k-1].end(length)<<16 | uint64(k-1))
		}
		i := due[0] & 0xffff
		due = due.pop()
		c := &classes[i]
		turns = append(turns, c.members[c.member])
		if c.member++; c.member == len(c.members) {
			c.member = 0
		}
		at := max(c.begin, now+1)
		c.next, later[at] = later[at], uint16(i+1)
	}
	return turns
}

// A class holds the endpoints of one weight.
type class struct {
	members []uint32
	member  int
	places  int    // turns of the class in the schedule
	begin   int    // when the next turn begins to be due, rounded down
	rest    int    // rest/places was rounded off
	next    uint16 // next class with a turn that begins at the same time
}

// end returns by when the next turn is due, and moves on to the turn after it.
func (c *class) end(length int) uint64 {
	c.begin += length / c.places
	if c.rest += length % c.places; c.rest >= c.places {
		c.rest -= c.places
		c.begin++
	}
	if c.rest > 0 {
		return uint64(c.begin + 1)
	}
	return uint64(c.begin)
}

// classify returns the classes, and the sum of their places.
func classify(weights []int) (classes []class, length int) {
	var by [MaxWeight + 1][]uint32
	divisor := 0
	for i, w := range weights {
		if w > 0 {
			by[w] = append(by[w], uint32(i))
			divisor = gcd(w, divisor)
		}
	}
	for w, members := range by {
		if places := len(members) * w; places > 0 {
			classes = append(classes, class{members: members, places: places / divisor})
			length += places / divisor
		}
	}
	return classes, length
}

// An edfHeap is a heap of turns: the time by which each is due, shifted by 16, and its class.
type edfHeap []uint64

func (q edfHeap) push(t uint64) edfHeap {
	q = append(q, t)
	i := len(q) - 1
	for i > 0 && t < q[(i-1)/2] {
		q[i] = q[(i-1)/2]
		i = (i - 1) / 2
	}
	q[i] = t
	return q
}

// pop removes the first turn.
func (q edfHeap) pop() edfHeap {
	last := len(q) - 1
	t := q[last]
	q = q[:last]
	if last == 0 {
		return q
	}
	i := 0
	for child := 1; child < last; child = 2*i + 1 {
		if child+1 < last && q[child+1] < q[child] {
			child++
		}
		if q[child] >= t {
			break
		}
		q[i] = q[child]
		i = child
	}
	q[i] = t
	return q
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// A tree is a tournament that the least score wins. It finds the best among 10,000 in 14 steps, and passes a changed
// score up in at most 14.
//
// A node has the least score among its leaves, and the sum of the weights of the leaves with this score, so that one
// of them can be drawn by weight. A goroutine that writes to a node looks at the children again, and then goes on to
// the parent. So every node is right when no goroutine is changing it; meanwhile a pick may take the second best.
type tree struct {
	members int
	leaves  int             // a power of two
	nodes   []atomic.Uint64 // score<<32 | weight of the leaves with this score
	shift   int             // shifts weights to the right, so that their sum fits into 32 bits
}

// weightMask selects the weight of a node.
const weightMask = 1<<32 - 1

// infinite is the score of endpoints that cannot be acquired: +Inf as a float32. Floats that are not negative are
// ordered like their bits.
const infinite = 0x7f800000

// noEndpoint is the node above leaves that cannot be acquired.
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

// score returns the endpoint's sessions divided by its weight, so that all idle endpoints are equal, and its present
// weight in parts of whole.
//
// The part of the weight that slow start withholds counts as the same part of a session: an endpoint without sessions
// and with a tenth of its weight counts as loaded as others with nine tenths of a session. Otherwise it would be the
// least loaded endpoint, and be filled at once, wherever endpoints have only a few sessions each.
func (e *Endpoint) score(slowStart int64) (score uint32, weight uint64) {
	ramp := e.ramp(slowStart)
	weight = uint64(e.weight.Load()) * ramp
	if weight == 0 || !e.CanAcquire() {
		return infinite, 0
	}
	return math.Float32bits(float32(uint64(e.Active())*whole+whole-ramp) / float32(weight)), weight
}

// update updates a member's leaf and the nodes above it.
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

// write sets a node to what returns, until that stays the same, and reports whether the node has changed.
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

// least returns the parent of two nodes.
func least(l, r uint64) uint64 {
	switch {
	case l>>32 < r>>32:
		return l
	case r>>32 < l>>32:
		return r
	}
	return l + r&weightMask
}

// best draws by weight among the members with the least score, or returns -1.
func (t *tree) best(random uint64) int {
	root := t.nodes[1].Load()
	if root == noEndpoint {
		return -1
	}
	k := (random >> 32) * (root & weightMask) >> 32 // position among these members
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
		return -1 // another goroutine was changing the tree above
	}
	return i
}

// untried returns the member with the least score below a node that this client has not tried, if the score is less
// than bound. It looks at both children only on the way to a tried member. Among equal members it draws by weight,
// with random.
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

// redraws is how often leastConn draws again if it has drawn an endpoint that this client has tried. So the chance of
// each equal endpoint is in proportion to its weight. After that the tree is searched.
const redraws = 4

// leastConn takes the endpoint with the least score. If there are several, it draws by weight.
func (t *tier) leastConn(p *pick) *Endpoint {
	starter := -1
	if t.counts[starting].Load() > 0 {
		starter = t.advance()
	}
	for left := 8 + redraws; left > 0; left-- {
		random := t.set.random()
		i := t.tree.best(random)
		if i >= 0 && starter >= 0 {
			i = t.beside(i, starter)
		}
		if i >= 0 && p.tried(t.members[i]) {
			if left > 8 {
				continue
			}
			i, _ = t.tree.untried(t.members, p, 1, infinite, mix(random))
		}
		if i < 0 {
			return nil
		}
		if e := t.members[i]; e.acquire(p.excluded) {
			return e
		}
	}
	return nil // other goroutines are quicker: any endpoint will do
}

// beside chooses between the drawn endpoint and an endpoint in slow start. By scores alone, idle endpoints would keep
// every client from the starting endpoint until its slow start is over. So if both are idle, it takes part in the
// draw with its present weight. Each pick looks at only one endpoint in slow start, as a substitute for all of them.
func (t *tier) beside(drawn, starter int) int {
	e := t.members[starter]
	if drawn == starter || t.members[drawn].Active() > 0 || e.Active() > 0 || !e.CanAcquire() {
		return drawn
	}
	mine := uint64(max(t.counts[starting].Load(), 1)) * (t.tree.nodes[t.tree.leaves+starter].Load() & weightMask)
	if all := t.tree.nodes[1].Load()&weightMask + mine; reduce(t.set.random(), all) < mine {
		return starter
	}
	return drawn
}

// advance updates the score of one endpoint in slow start, and returns it, or -1 if there is none. The endpoints take
// turns, one with each pick.
func (t *tier) advance() int {
	i := t.ramping.next(int(t.ramp.Load()))
	if i < 0 {
		i = t.ramping.next(0)
	}
	if i < 0 {
		return -1
	}
	t.ramp.Store(uint64(i) + 1)
	e := t.members[i]
	t.tree.update(i, e, int64(t.set.cfg.SlowStart))
	if e.ramp(int64(t.set.cfg.SlowStart)) == whole && e.mu.TryLock() {
		t.classify(i)
		e.mu.Unlock()
	}
	return i
}
