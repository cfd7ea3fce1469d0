package lb

// Internals that tests use.
var (
	Schedule   = schedule
	MaglevFor  = maglev
	RaceFor    = rendezvous
	TableSize  = tableSize
	Mix        = mix
	TableSizes = tableSizes
)

// Table returns the table of the local tier.
func (s *Set) Table() []uint32 { return s.tiers[local].plan.table }

// Tree returns the scores of the local tier's members, and the least one as the
// tree's root has it.
func (s *Set) Tree() (scores []uint32, root uint32) {
	t := s.tiers[local]
	for i := range t.members {
		score, _ := t.members[i].score(int64(s.cfg.SlowStart))
		scores = append(scores, score)
	}
	return scores, uint32(t.tree.nodes[1].Load() >> 32)
}

// TreeNodes checks every node of the local tier's tree against its children and
// returns the first that is wrong, or 0.
func (s *Set) TreeNodes() int {
	tr := s.tiers[local].tree
	for i := tr.leaves - 1; i > 0; i-- {
		if tr.nodes[i].Load() != least(tr.nodes[2*i].Load(), tr.nodes[2*i+1].Load()) {
			return i
		}
	}
	return 0
}

// Open returns which members the local tier believes can be acquired, and which ones
// really can.
func (s *Set) Open() (believed, true_ []bool) {
	t := s.tiers[local]
	for i, e := range t.members {
		believed = append(believed, t.open.has(i))
		true_ = append(true_, e.CanAcquire())
	}
	return believed, true_
}

// Acquire gives the endpoint another session, as [Set.Pick] does.
func (e *Endpoint) Acquire() bool { return e.acquire(unusableFlags) }

// SetRandom has the set draw from r.
func (s *Set) SetRandom(r func() uint64) { s.random = r }

// Seats returns in how many sets the endpoint is.
func (e *Endpoint) Seats() int { return len(e.memberships()) }

// SharesPlan reports whether the local tiers have one plan.
func (s *Set) SharesPlan(other *Set) bool {
	return s.tiers[local].plan == other.tiers[local].plan
}
