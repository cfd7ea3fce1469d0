package lb

import (
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Config sets up a [Set]. A nil *Config means the defaults.
type Config struct {
	// Policy is [RoundRobin] by default.
	Policy Policy

	// Zone is the local zone. Its endpoints are preferred; "" means no preference.
	Zone string

	// SpillBelow is the share of usable endpoints in the local zone below which clients go to
	// other zones, in proportion to the missing share. With 0, clients leave the zone only when no
	// local endpoint is usable.
	SpillBelow float64

	// PanicBelow is the share of usable endpoints below which all endpoints are used, even unhealthy ones; 0 means
	// never.
	PanicBelow float64

	// BackupWhenFull also sends clients to backups when every usable primary is at its limit.
	BackupWhenFull bool

	// SlowStart is how long the weight of an endpoint grows, from nothing, after it became usable or was added; 0
	// means no slow start.
	SlowStart time.Duration

	// OnRoom is called when a client that got [ErrFull] or [ErrUnavailable] may find room again: after a Release of
	// an endpoint with a limit, and when an endpoint has become usable. The goroutine of the Release or of the
	// verdict makes the call, and may hold locks of the endpoint: OnRoom must be quick. A client registers for the
	// call first, and then picks once more, or it could miss room that came in between. OnRoom may be nil.
	OnRoom func()
}

// A Member is an endpoint in a set.
type Member struct {
	Endpoint *Endpoint
	// Zone is the zone of the endpoint.
	Zone string
	// Backup endpoints are used only if no other endpoint is usable, see [Config.BackupWhenFull].
	Backup bool
	// Weight and Connections are given to the endpoint by [Set.Attach].
	Weight, Connections int
}

// A Set is a policy over endpoints. Its endpoints never change: a reload makes another set. It is safe
// for concurrent use.
type Set struct {
	cfg      Config
	members  []Member
	tiers    [tiers]*tier
	spill    atomic.Uint64 // spreads clients without a key between zones while spilling
	random   func() uint64
	mu       sync.Mutex // held by Attach and Detach
	attached bool       // under mu
}

// The tiers of a set. Without a zone, all primaries are local.
const (
	local = iota
	remote
	backup
	tiers
)

// NewSet returns a set of members. Endpoints are identified by their IDs. NewSet computes the policy's table, unless
// replaces already has the same one; replaces may be nil. docs/balancing.md says how long a table of 10,000 endpoints
// takes. NewSet changes no endpoint, and nothing may be picked before [Set.Attach].
func NewSet(members []Member, cfg *Config, replaces *Set) *Set {
	s := &Set{members: slices.Clone(members), random: rand.Uint64}
	if cfg != nil {
		s.cfg = *cfg
	}
	if s.cfg.Policy.Keyed() {
		slices.SortFunc(s.members, func(a, b Member) int { return strings.Compare(a.Endpoint.id, b.Endpoint.id) })
	}
	var many [tiers]int
	for i := range s.members {
		many[s.tierOf(&s.members[i])]++
	}
	var by [tiers][]*Endpoint
	var weights [tiers][]int
	for i := range s.members {
		m := &s.members[i]
		m.Weight = min(max(m.Weight, 0), MaxWeight)
		t := s.tierOf(m)
		if by[t] == nil {
			by[t], weights[t] = make([]*Endpoint, 0, many[t]), make([]int, 0, many[t])
		}
		by[t] = append(by[t], m.Endpoint)
		weights[t] = append(weights[t], m.Weight)
	}
	for i := range s.tiers {
		var p *plan
		if replaces != nil {
			p = replaces.tiers[i].planFor(&s.cfg, by[i], weights[i])
		}
		s.tiers[i] = newTier(s, by[i], weights[i], p)
	}
	return s
}

func (s *Set) tierOf(m *Member) int {
	switch {
	case m.Backup:
		return backup
	case s.cfg.Zone != "" && m.Zone != s.cfg.Zone:
		return remote
	}
	return local
}

// Attach gives the endpoints the weights and limits of their members. From now on the set follows their states. The
// caller attaches a set before its first Pick.
func (s *Set) Attach() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.attached {
		return
	}
	s.attached = true
	for i := range s.members { // usually the endpoints have these values already
		m := &s.members[i]
		if m.Endpoint.Weight() != m.Weight {
			m.Endpoint.SetWeight(m.Weight)
		}
		if m.Endpoint.Limit() != m.Connections {
			m.Endpoint.SetLimit(m.Connections)
		}
	}
	for _, t := range s.tiers {
		t.attach()
	}
}

// Detach makes the endpoints forget the set. Nothing may be picked from it any more.
func (s *Set) Detach() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.attached {
		return
	}
	s.attached = false
	for _, t := range s.tiers {
		for _, e := range t.members {
			e.leave(s)
		}
	}
}

// Members returns the members of the set. The caller must not change the list.
func (s *Set) Members() []Member { return s.members }

// A Status is the state of a set at a moment.
type Status struct {
	// Primaries counts the endpoints that are no backups, not draining, and have a weight above 0.
	Primaries int
	// UsablePrimaries is how many of them are usable, and UsableBackups how many backups are.
	UsablePrimaries, UsableBackups int
	// Room means that a usable endpoint may have another session.
	Room bool
	// Panic means that all endpoints are used, see [Config.PanicBelow].
	Panic bool
}

// Status returns the present state of the set.
func (s *Set) Status() Status {
	var st Status
	st.Primaries = int(s.tiers[local].counts[counted].Load() + s.tiers[remote].counts[counted].Load())
	st.UsablePrimaries = int(s.tiers[local].counts[usable].Load() + s.tiers[remote].counts[usable].Load())
	st.UsableBackups = int(s.tiers[backup].counts[usable].Load())
	for _, t := range s.tiers {
		st.Room = st.Room || t.open.next(0) >= 0
	}
	st.Panic = s.Panicking()
	return st
}

// A plan is the table that a policy computes from members and weights. It never changes.
type plan struct {
	weights  []int
	schedule []uint32 // members by turn
	table    []uint32 // members by slot: Maglev and SourceIP
}

func newPlan(cfg *Config, members []*Endpoint, weights []int) *plan {
	p := &plan{weights: weights}
	switch cfg.Policy {
	case Maglev:
		p.table = maglev(members, weights, tableSize(len(members)))
	case SourceIP:
		p.table = rendezvous(members, weights, tableSize(len(members)))
	case RoundRobin, RandomTwo:
		p.schedule = schedule(weights)
	case LeastConn:
		if cfg.PanicBelow > 0 { // a pick in panic draws two endpoints
			p.schedule = schedule(weights)
		}
	}
	return p
}

// planFor returns the tier's plan if it also fits these members and weights, or nil. Plans know members by index.
func (t *tier) planFor(cfg *Config, members []*Endpoint, weights []int) *plan {
	same := func(a, b *Endpoint) bool { return a.id == b.id }
	p := t.plan
	if t.set.cfg.Policy != cfg.Policy || (t.set.cfg.PanicBelow > 0) != (cfg.PanicBelow > 0) ||
		!slices.EqualFunc(t.members, members, same) || !slices.Equal(p.weights, weights) {
		return nil
	}
	return p
}

// A tier holds the endpoints of a set that are equally preferred.
//
// Its bits and counts follow the endpoints' states without a lock: a goroutine changes the endpoint first, then the
// tier, and then looks at the endpoint again. The tier may be behind for a moment; only the endpoint's own word
// grants a session.
type tier struct {
	set     *Set
	members []*Endpoint
	plan    *plan
	tree    *tree  // LeastConn
	open    bitmap // endpoints that can be acquired
	ramping bitmap // LeastConn: endpoints in slow start

	counts  [classes]atomic.Int64
	classes []uint8 // by member: bits for the counts that it is in; under the member's mu

	_    [64]byte // the counters that every pick writes have their own cache line: BenchmarkPickParallel
	turn atomic.Uint64
	ramp atomic.Uint64 // LeastConn: where to look for the next endpoint in slow start
	_    [48]byte
}

// What a tier counts, and the bits of a member in tier.classes.
const (
	counted    = iota // endpoints that are not draining, with a weight above 0
	usable            // counted endpoints that are usable
	starting          // endpoints in ramping
	working           // usable endpoints that are not failing
	lastResort        // counted endpoints that are neither barred nor failing
	notFailing        // counted endpoints that are not failing
	classes
)

func newTier(s *Set, members []*Endpoint, weights []int, p *plan) *tier {
	t := &tier{
		set: s, members: members, open: newBitmap(len(members)), ramping: newBitmap(len(members)),
		classes: make([]uint8, len(members)),
	}
	if p == nil {
		p = newPlan(&s.cfg, members, weights)
	}
	t.plan = p
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
	// Most endpoints are in no other set. Their lists are allocated together.
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

// changed updates the sets after a change of flags, weight or limit. The caller holds mu.
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

// classify counts a member by its state. The caller holds the member's mu.
func (t *tier) classify(i int) {
	var now uint8
	e := t.members[i]
	if w := e.word.Load(); w&absentFlags == 0 {
		now = 1 << counted
		if w&unusableFlags == 0 {
			now |= 1 << usable
		}
		if w&(unusableFlags|flagFailing) == 0 {
			now |= 1 << working
		}
		if w&noLastResortFlags == 0 {
			now |= 1 << lastResort
		}
		if w&flagFailing == 0 {
			now |= 1 << notFailing
		}
	}
	if t.tree != nil && e.ramp(int64(t.set.cfg.SlowStart)) < whole {
		now |= 1 << starting
		t.ramping.add(i)
	} else if t.tree != nil {
		t.ramping.remove(i)
	}
	was := t.classes[i]
	t.classes[i] = now
	for bit := range t.counts {
		t.counts[bit].Add(int64(now>>bit&1) - int64(was>>bit&1))
	}
}

// refresh updates the tier's view of a member's room and load.
func (t *tier) refresh(i int) {
	e := t.members[i]
	t.open.keep(i, e.CanAcquire)
	if t.tree != nil {
		t.tree.update(i, e, int64(t.set.cfg.SlowStart))
	}
}
