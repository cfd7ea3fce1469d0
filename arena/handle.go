package arena

import "math/bits"

// A Handle names a slot in use, by its position in units of MinSlot and the slot's generation. To the garbage
// collector it is a plain number. The zero Handle names no slot.
//
// A handle is refused once its slot was put, even if the place is out again, in another size or another Local.
// Generations have 32 bits: a stale handle is accepted by mistake only after exactly 4,294,967,295 further leases
// of the same place, or a multiple of this.
type Handle uint64

func handleOf(unit, generation uint32) Handle { return Handle(generation)<<32 | Handle(unit) }

func (h Handle) unit() uint32       { return uint32(h) }
func (h Handle) generation() uint32 { return uint32(h >> 32) }

// offset returns where the slot begins, in bytes from the start of the arena.
func (h Handle) offset() int64 { return int64(h.unit()) * MinSlot }

// A slot is the state of a place where slots may begin. Each unit of MinSlot has one, however its chunk is cut.
// It belongs to the Local that has the chunk.
type slot struct {
	generation uint32 // of the latest lease; 0: none yet
	next       uint16 // if this slot is free, the next free slot of the chunk; see chunk.free
	purpose    Purpose
	out        bool
}

// lease takes the slot out and returns its new generation, which is never 0, so that no handle is 0.
func (s *slot) lease(p Purpose) uint32 {
	s.generation++
	if s.generation == 0 {
		s.generation = 1
	}
	s.purpose, s.out = p, true
	return s.generation
}

// is reports whether the lease with that generation is out.
func (s *slot) is(generation uint32) bool { return s.out && s.generation == generation }

// A class is a slot size: MinSlot shifted left by the class.
type class uint8

const (
	minShift = 8                           // of MinSlot
	classes  = 9                           // from MinSlot to MaxSlot
	units    = ChunkSize / MinSlot         // of a chunk
	_        = uint(MinSlot>>minShift - 1) // fails to compile unless MinSlot is 1<<minShift
	_        = uint(MaxSlot>>(minShift+classes-1) - 1)
)

// classOf returns the smallest class with slots of at least size bytes, for sizes from 1 to MaxSlot.
func classOf(size int) class {
	return class(bits.Len(uint(max(size, MinSlot)-1)) - minShift)
}

// bytes returns the size of a slot.
func (c class) bytes() int { return MinSlot << c }

// slots returns the number of slots in a chunk.
func (c class) slots() uint16 { return units >> c }

// A chunk is ChunkSize bytes that one Local has, cut into slots of one class. It fills its own cache line,
// because its neighbours may belong to other Locals.
type chunk struct {
	class class
	out   uint16 // slots that are out
	cut   uint16 // slots that were ever out since the chunk was cut
	free  uint16 // the free slot that was put last, its number plus 1; 0: none
	next  int32  // neighbours in the Local's list of chunks with room; -1: none
	prev  int32
	on    bool // it is on that list
	_     [47]byte
}

// recut makes an empty chunk a chunk of another class.
func (c *chunk) recut(to class) { *c = chunk{class: to, next: none, prev: none} }

// full reports whether no slot is left.
func (c *chunk) full() bool { return c.out == c.class.slots() }

// take returns the number of a free slot, preferably the one that was put last. The chunk must not be full.
// slots has a slot for each unit of the chunk.
func (c *chunk) take(slots []slot) uint16 {
	c.out++
	if c.free == 0 {
		c.cut++
		return c.cut - 1
	}
	n := c.free - 1
	c.free = slots[n<<c.class].next
	return n
}

// give takes back a slot number that take has returned.
func (c *chunk) give(slots []slot, n uint16) {
	c.out--
	slots[n<<c.class].next = c.free
	c.free = n + 1
}

const none = -1

// A list holds chunks with room, by number.
type list struct{ first int32 }

func (l *list) push(chunks []chunk, n int32) {
	chunks[n].next, chunks[n].prev, chunks[n].on = l.first, none, true
	if l.first != none {
		chunks[l.first].prev = n
	}
	l.first = n
}

func (l *list) remove(chunks []chunk, n int32) {
	c := &chunks[n]
	if c.prev == none {
		l.first = c.next
	} else {
		chunks[c.prev].next = c.next
	}
	if c.next != none {
		chunks[c.next].prev = c.prev
	}
	c.next, c.prev, c.on = none, none, false
}
