package arena

// A Ring keeps bytes in a slot, first in, first out. It holds no pointer, so that the collector does not scan a
// table of Rings: instead, each call gets the bytes of the same slot. Peek and Write panic unless the length of
// the slot is a power of two, as of every slot of an arena. The zero Ring is empty. It is not safe for
// concurrent use.
type Ring struct {
	// Offsets of the next byte to read and to write. They count on beyond the slot's length and wrap at 2^32, a
	// multiple of the length. So their difference is the number of bytes in the ring, from none to all.
	head, tail uint32
}

// Len returns the number of bytes in the ring.
func (r *Ring) Len() int { return int(r.tail - r.head) }

// Peek returns the ring's bytes in two parts, the older one first, for writev(2). The second part is empty
// unless the bytes continue at the beginning of the slot. Both are in the slot.
func (r *Ring) Peek(slot []byte) (first, second []byte) { return halves(slot, r.head, r.Len()) }

// Discard drops the n oldest bytes. It panics if there are fewer.
func (r *Ring) Discard(n int) {
	if uint(n) > uint(r.Len()) {
		panic("arena: ring: Discard of more bytes than the ring has")
	}
	r.head += uint32(n)
}

// Write adds as much of p as there is room for, and returns how much that was.
func (r *Ring) Write(slot, p []byte) int {
	first, second := halves(slot, r.tail, len(slot)-r.Len())
	n := copy(first, p)
	n += copy(second, p[n:])
	r.tail += uint32(n)
	return n
}

// halves returns n bytes of the slot, from an offset on.
func halves(slot []byte, offset uint32, n int) (first, second []byte) {
	if len(slot) == 0 || len(slot)&(len(slot)-1) != 0 {
		panic("arena: ring: the length of the slot is no power of two")
	}
	from := int(offset & uint32(len(slot)-1))
	if n <= len(slot)-from {
		return slot[from : from+n], nil
	}
	return slot[from:], slot[:n-(len(slot)-from)]
}
