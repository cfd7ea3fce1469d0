package arena

// A chunk is ChunkSize bytes that one Local has, cut into slots of one class. It
// lies on a cache line of its own, for its neighbours may be other Locals'.
type chunk struct {
	class class
	out   uint16 // slots that are out
	cut   uint16 // slots that were out at least once since the chunk was cut
	free  uint16 // the last of these that was put, its number plus 1; 0: none is free
	next  int32  // neighbours in the Local's list of chunks with room, if it is on that; -1: none
	prev  int32
	on    bool // the list
	_     [47]byte
}

// recut makes an empty chunk one of class c, of which no slot was out.
func (c *chunk) recut(to class) { *c = chunk{class: to, next: none, prev: none} }

// full reports whether no slot is left.
func (c *chunk) full() bool { return c.out == c.class.slots() }

// take returns the number of a free slot, the one that was put last if there is
// any. The chunk is not full. slots are those of the chunk, one for each unit.
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

// give is called with the number of a slot that take has returned.
func (c *chunk) give(slots []slot, n uint16) {
	c.out--
	slots[n<<c.class].next = c.free
	c.free = n + 1
}

const none = -1

// A list is of chunks with room, by number.
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
