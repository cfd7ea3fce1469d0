package arena

// Invariants is whether this is a build with that tag.
const Invariants = invariants

// SetGeneration makes the slot of h, which is out, one that has that generation, and
// returns its handle.
func (l *Local) SetGeneration(h Handle, generation uint32) Handle {
	l.find(h).generation = generation
	return handleOf(h.unit(), generation)
}

// CountOut returns how many slots are out, to the owner.
func (l *Local) CountOut() int64 { return l.out() }

// RingAt is an empty ring whose offsets are there.
func RingAt(offset uint32) Ring { return Ring{offset, offset} }
