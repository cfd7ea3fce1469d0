package arena

// Invariants is whether this is a build with that tag.
const Invariants = invariants

// SetGeneration makes the slot of h, which is out, one that has that generation, and
// returns its handle.
func (l *Local) SetGeneration(h Handle, generation uint32) Handle {
	l.find(h).generation = generation
	return handleOf(h.unit(), generation)
}

// Offset is where the slot begins, in bytes from the start of the arena.
func (h Handle) Offset() int64 { return h.offset() }

// Trim is trim.
func (l *Local) Trim() { l.trim() }

// RingAt is an empty ring whose offsets are there.
func RingAt(offset uint32) Ring { return Ring{offset, offset} }
