package arena

// A Handle names a slot that is out: where it lies, in units of MinSlot, and the
// slot's generation. It is a number, which the collector does not look at. The zero
// Handle names none.
//
// A handle is refused once its slot was put, also when the slot is out again, of
// another size, or in another Local. Generations have 32 bits: a handle that was
// kept too long is taken for a good one only by the lease that comes exactly
// 4,294,967,295 leases later in the very same place, or a multiple of that.
type Handle uint64

func handleOf(unit, generation uint32) Handle { return Handle(generation)<<32 | Handle(unit) }

func (h Handle) unit() uint32       { return uint32(h) }
func (h Handle) generation() uint32 { return uint32(h >> 32) }

// Offset is where the slot begins, in bytes from the start of the arena.
func (h Handle) Offset() int64 { return int64(h.unit()) * MinSlot }

// A slot is the state of a place where slots may begin: each unit of MinSlot has one, however
// the chunk is cut. It belongs to the Local that has the chunk.
type slot struct {
	generation uint32 // of the latest lease; 0: none yet
	next       uint16 // the next free slot of the chunk, if this one is free: see chunk.free
	purpose    Purpose
	out        bool
}

// lease takes the slot out and returns its new generation, which is not 0, so that
// no handle is.
func (s *slot) lease(p Purpose) uint32 {
	s.generation++
	if s.generation == 0 {
		s.generation = 1
	}
	s.purpose, s.out = p, true
	return s.generation
}

// is reports whether that lease is out.
func (s *slot) is(generation uint32) bool { return s.out && s.generation == generation }
