package lb

import (
	"slices"
	"sync/atomic"
)

// A tier is the endpoints of a set that are as good as one another.
//
// Its bits and counts follow their states without a lock: a goroutine changes the endpoint first, then the
// tier, and then looks at the endpoint again. The tier may be behind for a moment; only the endpoint's own
// word grants a session.
type tier struct {
	set     *Set
	members []*Endpoint
	plan    atomic.Pointer[plan]
	tree    *tree  // LeastConn
	open    bitmap // endpoints that can be acquired
	ramping bitmap // LeastConn: endpoints in slow start

	counted    atomic.Int64 // neither draining nor of weight 0
	usable     atomic.Int64 // of those counted
	working    atomic.Int64 // of those usable: not failing
	lastResort atomic.Int64 // of those counted: neither barred nor failing
	notFailing atomic.Int64 // of those counted: not failing
	starting   atomic.Int64 // in ramping
	classes    []uint8      // by member: which of these count it, as bits; under the member's mu

	_    [64]byte // counters that every pick writes have a cache line of their own: BenchmarkPickParallel
	turn atomic.Uint64
	ramp atomic.Uint64 // LeastConn: where to look for the next one in slow start
	_    [48]byte
}

// The bits of a member in tier.classes.
const (
	isCounted = iota
	isUsable
	isStarting
	isWorking
	isLastResort
	isNotFailing
)

func newTier(s *Set, members []*Endpoint, weights []int, p *plan) *tier {
	t := &tier{
		set: s, members: members, open: newBitmap(len(members)), ramping: newBitmap(len(members)),
		classes: make([]uint8, len(members)),
	}
	if p == nil {
		p = newPlan(&s.cfg, members, weights)
	}
	t.plan.Store(p)
	t.turn.Store(s.random() >> 1) // or all nodes of a fleet would begin with the same endpoint
	if s.cfg.Policy == LeastConn {
		t.tree = newTree(len(members))
	}
	return t
}

// A membership is an endpoint's place in a set.
type membership struct {
	tier *tier
	at   int
}

func (t *tier) attach() {
	// Most are in no other set. Theirs are allocated together.
	own, lists := make([]membership, len(t.members)), make([][]membership, len(t.members))
	for i, e := range t.members {
		e.mu.Lock()
		own[i] = membership{t, i}
		list := &lists[i]
		if *list = own[i : i+1 : i+1]; len(e.memberships()) > 0 {
			list = new([]membership)
			*list = append(slices.Clone(e.memberships()), own[i])
		}
		e.inSets.Store(list)
		if t.tree != nil {
			e.scored.Store(true)
		}
		t.classify(i)
		t.refresh(i)
		e.mu.Unlock()
	}
}

// leave removes the endpoint from a set.
func (e *Endpoint) leave(s *Set) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var others []membership
	scored := false
	for _, at := range e.memberships() {
		if at.tier.set != s {
			others = append(others, at)
			scored = scored || at.tier.tree != nil
		}
	}
	if e.scored.Store(scored); others == nil {
		e.inSets.Store(nil)
		return
	}
	e.inSets.Store(&others)
}

func (e *Endpoint) memberships() []membership {
	if all := e.inSets.Load(); all != nil {
		return *all
	}
	return nil
}

// changed updates the sets after a change of flags, weight or limit. The caller has mu.
func (e *Endpoint) changed() {
	for _, s := range e.memberships() {
		s.tier.classify(s.at)
		s.tier.refresh(s.at)
	}
	if e.word.Load()&(unusableFlags|absentFlags) == 0 {
		e.notifyRoom()
	}
}

// rejoin updates the sets after a change of the number of sessions.
func (e *Endpoint) rejoin() {
	for _, s := range e.memberships() {
		s.tier.refresh(s.at)
	}
}

// notifyRoom notifies the clients that wait for room.
func (e *Endpoint) notifyRoom() {
	for _, s := range e.memberships() {
		if f := s.tier.set.cfg.OnRoom; f != nil {
			f()
		}
	}
}

// classify counts a member by its state. The caller has its mu.
func (t *tier) classify(i int) {
	var now uint8
	e := t.members[i]
	if w := e.word.Load(); w&absentFlags == 0 {
		now = 1 << isCounted
		if w&unusableFlags == 0 {
			now |= 1 << isUsable
		}
		if w&(unusableFlags|flagFailing) == 0 {
			now |= 1 << isWorking
		}
		if w&noLastResortFlags == 0 {
			now |= 1 << isLastResort
		}
		if w&flagFailing == 0 {
			now |= 1 << isNotFailing
		}
	}
	if t.tree != nil && e.ramp(int64(t.set.cfg.SlowStart)) < whole {
		now |= 1 << isStarting
		t.ramping.add(i)
	} else if t.tree != nil {
		t.ramping.remove(i)
	}
	was := t.classes[i]
	t.classes[i] = now
	for bit, count := range [...]*atomic.Int64{
		isCounted: &t.counted, isUsable: &t.usable, isStarting: &t.starting, isWorking: &t.working,
		isLastResort: &t.lastResort, isNotFailing: &t.notFailing,
	} {
		count.Add(int64(now>>bit&1) - int64(was>>bit&1))
	}
}

// refresh brings the view of a member's room and load up to date.
func (t *tier) refresh(i int) {
	e := t.members[i]
	t.open.keep(i, e.CanAcquire)
	if t.tree != nil {
		t.tree.update(i, e, int64(t.set.cfg.SlowStart))
	}
}
