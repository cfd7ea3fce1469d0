package arena

import "unsafe"

// A Local hands out slots to one goroutine at a time: Get, Bytes and Put must not run at the same time. Put a
// slot into the Local that it came from.
//
// A Local takes whole chunks from the arena. It keeps the chunks with slots in use, and one empty chunk, so
// that taking and putting one slot again and again does not touch the arena.
type Local struct {
	depot *depot

	// The arena's slices. A Local touches only its own chunks and slots.
	bytes    []byte
	chunks   []chunk
	slots    []slot
	releases releases

	room  [classes]list // chunks with free slots
	empty int32         // a chunk without a slot out, alone on its list or on none; -1: none
	own   []uint64      // one bit for each chunk of the arena: it belongs to this Local

	tally     tally
	published published
}

func (l *Local) init(a *Arena, d *depot) {
	l.depot, l.empty = d, none
	l.bytes, l.chunks, l.slots, l.releases = a.bytes, a.chunks, a.slots, a.releases
	l.own = make([]uint64, (len(a.chunks)+63)/64)
	for c := range l.room {
		l.room[c].first = none
	}
}

// Node returns the NUMA node that the slots are bound to, or -1.
func (l *Local) Node() int {
	if l.depot == nil {
		return -1
	}
	return l.depot.node
}

// Get returns a slot of at least size bytes with undefined content, which the caller has to put. The error is
// ErrBudget if the budget is used up, ErrSize if size is not from 1 to MaxSlot, or ErrClosed. An unknown
// purpose counts as Other.
func (l *Local) Get(size int, p Purpose) (Handle, error) {
	if uint(size-1) >= MaxSlot {
		return 0, ErrSize
	}
	if l.depot == nil { // the zero Local
		return 0, ErrClosed
	}
	c, p := classOf(size), min(p, Other)
	n := l.room[c].first
	if n == none {
		var err error
		if n, err = l.refill(c); err != nil {
			l.refused(p)
			return 0, err
		}
	}
	if n == l.empty {
		l.empty = none
	}
	k := &l.chunks[n]
	slots := l.slotsOf(n)
	i := k.take(slots) << c
	if k.full() {
		l.room[c].remove(l.chunks, n)
	}
	h := handleOf(uint32(n)*units+uint32(i), slots[i].lease(p))
	if invariants {
		l.releases.check(l.at(h, c), h.offset())
	}
	l.got(p, c)
	return h, nil
}

// Bytes returns the whole slot: at least as long as the size asked of Get, and a power of two. It is valid
// until Put; do not touch it afterwards, because the garbage collector does not manage this memory. The error
// is ErrStale.
func (l *Local) Bytes(h Handle) ([]byte, error) {
	s := l.find(h)
	if s == nil {
		return nil, l.staled()
	}
	return l.at(h, l.chunks[h.unit()/units].class), nil
}

// Put gives a slot back. The error is ErrStale, for instance at a second Put.
func (l *Local) Put(h Handle) error {
	s := l.find(h)
	if s == nil {
		return l.staled()
	}
	n := int32(h.unit() / units)
	k := &l.chunks[n]
	if invariants {
		poison(l.at(h, k.class))
		l.releases.note(h.unit(), k.class.bytes())
	}
	l.gave(s.purpose, k.class)
	s.out = false
	full := k.full()
	k.give(l.slotsOf(n), uint16(h.unit()%units)>>k.class)
	switch {
	case k.out == 0:
		l.emptied(n) // afterwards the chunk may belong to another Local
	case full:
		l.room[k.class].push(l.chunks, n)
	}
	return nil
}

// find returns the slot of h if this Local has handed it out, or nil.
func (l *Local) find(h Handle) *slot {
	u := h.unit()
	if n := u / units; int(n/64) >= len(l.own) || l.own[n/64]&(1<<(n%64)) == 0 {
		return nil // not this Local's chunk
	}
	if s := &l.slots[u]; s.is(h.generation()) {
		return s
	}
	return nil
}

func (l *Local) slotsOf(n int32) []slot { return l.slots[int(n)*units:][:units:units] }

// at returns the bytes of a slot of class c.
func (l *Local) at(h Handle, c class) []byte {
	from, n := int(h.unit())*MinSlot, c.bytes()
	return l.bytes[from : from+n : from+n]
}

// refill puts a chunk on the empty list of class c and returns it: the Local's empty chunk, or a chunk of the
// arena.
func (l *Local) refill(c class) (int32, error) {
	n := l.empty
	if n == none {
		var err error
		if n, err = l.depot.take(); err != nil {
			return none, err
		}
		l.own[n/64] |= 1 << (n % 64)
	} else {
		l.unlist(n)
	}
	l.chunks[n].recut(c)
	l.room[c].push(l.chunks, n)
	return n, nil
}

// emptied is called after the last slot of a chunk was put. It keeps the chunk, or gives it back if the Local
// already has an empty one. If other chunks of its class have room, a kept chunk leaves the list of the class:
// they are filled first, and the empty chunk may serve another class.
func (l *Local) emptied(n int32) {
	if l.empty != none {
		l.unlist(n)
		l.release(n)
		return
	}
	l.empty = n
	switch list := &l.room[l.chunks[n].class]; {
	case list.first == none:
		list.push(l.chunks, n) // it was full before this put
	case list.first != n || l.chunks[n].next != none:
		l.unlist(n)
	}
}

// unlist takes a chunk off its list, if it is on it.
func (l *Local) unlist(n int32) {
	if k := &l.chunks[n]; k.on {
		l.room[k.class].remove(l.chunks, n)
	}
}

func (l *Local) release(n int32) {
	l.own[n/64] &^= 1 << (n % 64)
	l.depot.give(n)
}

// trim gives back the empty chunk that the Local keeps, if any.
func (l *Local) trim() {
	if l.depot != nil && l.empty != none {
		l.unlist(l.empty)
		l.release(l.empty)
		l.empty = none
	}
	l.Flush()
}

// Release puts the slot that contains the first byte of piece. It is for code that has the memory but not its
// handle, such as a vecio.Writer. If this Local has no such slot in use, nothing changes, and [Stats].Stale counts
// it. Release does not notice that the slot was put and handed out again: so call either Release or Put, exactly
// once.
func (l *Local) Release(piece []byte) {
	h, ok := l.handleOf(piece)
	if !ok {
		_ = l.staled()
		return
	}
	_ = l.Put(h) // Put counts stale handles
}

// handleOf returns the handle of the lease of the slot where a piece begins.
func (l *Local) handleOf(piece []byte) (Handle, bool) {
	// This only compares two addresses; nothing is made of the difference.
	offset := uintptr(unsafe.Pointer(unsafe.SliceData(piece))) - uintptr(unsafe.Pointer(unsafe.SliceData(l.bytes)))
	if cap(piece) == 0 || offset >= uintptr(len(l.bytes)) {
		return 0, false
	}
	n := uint32(offset / ChunkSize)
	if l.own[n/64]&(1<<(n%64)) == 0 {
		return 0, false // not this Local's chunk
	}
	u := uint32(offset/MinSlot) &^ (1<<l.chunks[n].class - 1)
	return handleOf(u, l.slots[u].generation), true
}
