package balance

import (
	"slices"
	"sync/atomic"
)

// A tier is the endpoints of a set that are as good as one another.
//
// What it knows of them follows what they are by two rules, so that no lock is
// needed: whoever has changed an endpoint writes to the tier after it, and looks
// again after having written. At a moment it may be behind; a place is only ever
// taken in the endpoint's own word.
type tier struct {
	set     *Set
	members []*Endpoint
	plan    atomic.Pointer[plan]
	tree    *tree  // LeastConn
	open    bitmap // who can be acquired
	ramping bitmap // LeastConn: who is in slow start

	counted  atomic.Int64 // neither draining nor of weight 0
	usable   atomic.Int64 // of those counted
	working  atomic.Int64 // of those usable: not failing
	hopeful  atomic.Int64 // of those counted: neither barred nor failing
	reached  atomic.Int64 // of those counted: not failing
	starting atomic.Int64 // in ramping
	standing []uint8      // what a member adds to them; under the member's mu

	_    [64]byte // counters that every pick writes have a cache line of their own: BenchmarkPickParallel
	turn atomic.Uint64
	ramp atomic.Uint64 // LeastConn: where to look for the next one in slow start
	_    [48]byte
}

const (
	standsCounted = 1 << iota
	standsUsable
	standsStarting
	standsWorking
	standsHopeful
	standsReached
)

func newTier(s *Set, members []*Endpoint, weights []int, p *plan) *tier {
	t := &tier{
		set: s, members: members, open: newBitmap(len(members)), ramping: newBitmap(len(members)),
		standing: make([]uint8, len(members)),
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

// A seat is an endpoint's place in a set.
type seat struct {
	tier *tier
	at   int
}

func (t *tier) attach() {
	// Most have no other seat, and are to have these for as long as each other.
	own, lists := make([]seat, len(t.members)), make([][]seat, len(t.members))
	for i, e := range t.members {
		e.mu.Lock()
		own[i] = seat{t, i}
		seats := &lists[i]
		if *seats = own[i : i+1 : i+1]; len(e.sits()) > 0 {
			seats = new([]seat)
			*seats = append(slices.Clone(e.sits()), own[i])
		}
		e.seats.Store(seats)
		if t.tree != nil {
			e.scored.Store(true)
		}
		t.stand(i)
		t.follow(i)
		e.mu.Unlock()
	}
}

// leave gives up the endpoint's seat in a set.
func (e *Endpoint) leave(s *Set) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var seats []seat
	scored := false
	for _, at := range e.sits() {
		if at.tier.set != s {
			seats = append(seats, at)
			scored = scored || at.tier.tree != nil
		}
	}
	if e.scored.Store(scored); seats == nil {
		e.seats.Store(nil)
		return
	}
	e.seats.Store(&seats)
}

func (e *Endpoint) sits() []seat {
	if seats := e.seats.Load(); seats != nil {
		return *seats
	}
	return nil
}

// changed tells the sets that flags, weight or limit are not what they were. The
// caller has mu.
func (e *Endpoint) changed() {
	for _, s := range e.sits() {
		s.tier.stand(s.at)
		s.tier.follow(s.at)
	}
	if e.word.Load()&(flagsIll|flagsAbsent) == 0 {
		e.tell()
	}
}

// reseat tells the sets that the number of sessions has changed.
func (e *Endpoint) reseat() {
	for _, s := range e.sits() {
		s.tier.follow(s.at)
	}
}

// tell tells who waits for room.
func (e *Endpoint) tell() {
	for _, s := range e.sits() {
		if f := s.tier.set.cfg.OnRoom; f != nil {
			f()
		}
	}
}

// stand counts a member for what it is. The caller has its mu.
func (t *tier) stand(i int) {
	var now uint8
	e := t.members[i]
	if w := e.word.Load(); w&flagsAbsent == 0 {
		now = standsCounted
		if w&flagsIll == 0 {
			now |= standsUsable
		}
		if w&(flagsIll|flagFailing) == 0 {
			now |= standsWorking
		}
		if w&flagsVain == 0 {
			now |= standsHopeful
		}
		if w&flagFailing == 0 {
			now |= standsReached
		}
	}
	if t.tree != nil && e.ramp(int64(t.set.cfg.SlowStart)) < full {
		now |= standsStarting
		t.ramping.add(i)
	} else if t.tree != nil {
		t.ramping.remove(i)
	}
	was := t.standing[i]
	t.standing[i] = now
	for bit, count := range [...]*atomic.Int64{&t.counted, &t.usable, &t.starting, &t.working, &t.hopeful, &t.reached} {
		count.Add(int64(now>>bit&1) - int64(was>>bit&1))
	}
}

// follow brings what is known of a member's room and load up to date.
func (t *tier) follow(i int) {
	e := t.members[i]
	t.open.keep(i, e.open)
	if t.tree != nil {
		t.tree.update(i, e, int64(t.set.cfg.SlowStart))
	}
}
