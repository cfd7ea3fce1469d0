package loop

import "iter"

// A slot is the handler of a descriptor.
type slot struct {
	handler    Handler // nil while the slot is free
	fd         int32   // borrowed from the caller of Add; of a free slot, the next free one
	generation uint32  // of the next or present registration, never 0
}

// generationBits is how much of a generation fits beside a slot and a which into
// the 64 bits that epoll keeps for us. A slot would have to be used again 16
// million times within one batch of events for a stale one to be mistaken.
const generationBits = 24

const (
	// tableChunk slots are six of the runtime's pages: a chunk of less than 32 KiB
	// would be rounded up to a size class, by up to an eighth.
	tableChunk = 2048
	noSlot     = -1
)

// A table is the slots of a loop. It grows by chunks, so that growing copies
// nothing, and slots are used again in the order in which they were freed last.
type table struct {
	chunks []*[tableChunk]slot
	free   int32 // noSlot if none is
	used   int
}

func (t *table) at(i uint32) *slot {
	if int(i/tableChunk) >= len(t.chunks) {
		return nil
	}
	return &t.chunks[i/tableChunk][i%tableChunk]
}

// take takes a free slot.
func (t *table) take(fd int, h Handler) ID {
	if t.free == noSlot {
		t.grow()
	}
	i := uint32(t.free)
	s := t.at(i)
	t.free = s.fd
	s.handler, s.fd = h, int32(fd)
	t.used++
	return newID(i, s.generation)
}

func (t *table) grow() {
	first := int32(len(t.chunks) * tableChunk)
	chunk := new([tableChunk]slot)
	for i := range chunk {
		chunk[i] = slot{fd: first + int32(i) + 1, generation: 1}
	}
	chunk[tableChunk-1].fd = noSlot
	t.chunks = append(t.chunks, chunk)
	t.free = first
}

// find returns the slot of a registration, or nil for one that is stale.
func (t *table) find(id ID) *slot {
	s := t.at(id.slot())
	if s == nil || s.handler == nil || s.generation != id.generation() {
		return nil
	}
	return s
}

// drop frees the slot of a registration that is in force.
func (t *table) drop(id ID) {
	s := t.at(id.slot())
	s.handler, s.fd = nil, t.free
	if s.generation = (s.generation + 1) & (1<<generationBits - 1); s.generation == 0 {
		s.generation = 1
	}
	t.free = int32(id.slot())
	t.used--
}

// handlers are those of the registrations that are in force. Any may be dropped meanwhile.
func (t *table) handlers() iter.Seq[Handler] {
	return func(yield func(Handler) bool) {
		for _, chunk := range t.chunks {
			for i := range chunk {
				if h := chunk[i].handler; h != nil && !yield(h) {
					return
				}
			}
		}
	}
}
