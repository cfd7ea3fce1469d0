package arena

import "unsafe"

// A Local hands out slots to one goroutine at a time: Get, Bytes and Put must not run
// at the same time, and a slot is put to the Local that it came from.
//
// It takes whole chunks from the arena, and keeps the chunks that have slots in use and
// one empty chunk. So a slot that is taken and put again and again does not touch the
// arena. Trim gives the empty chunk back, too.
type Local struct {
	depot *depot

	// The arena's, all of them. We touch only our own chunks and slots.
	bytes    []byte
	chunks   []chunk
	slots    []slot
	releases releases

	room  [classes]list // chunks with a slot to have
	empty int32         // a chunk of ours without a slot out, on a list as its last or on none; -1: none
	own   []uint64      // chunks that are ours: a bit for each of the arena

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

// Node returns the NUMA node to which the slots are bound, -1 if they are not.
func (l *Local) Node() int {
	if l.depot == nil {
		return -1
	}
	return l.depot.node
}

// Get returns a slot of at least size bytes. Its content is undefined. The caller has
// to put it. The error is ErrBudget if the budget is spent, ErrSize if size is not from
// 1 to MaxSlot, or ErrClosed. An unknown purpose counts as Other.
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

// Bytes returns the whole slot, which is at least as long as Get was asked for; its
// length is a power of two. It is valid until Put and must not be touched afterwards:
// the garbage collector does not manage this memory. The error is ErrStale.
func (l *Local) Bytes(h Handle) ([]byte, error) {
	s := l.find(h)
	if s == nil {
		return nil, l.staled()
	}
	return l.at(h, l.chunks[h.unit()/units].class), nil
}

// Put gives a slot back. The error is ErrStale, also for a second Put.
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
		l.emptied(n) // and then the chunk may be another's
	case full:
		l.room[k.class].push(l.chunks, n)
	}
	return nil
}

// find returns the slot of h if it is out of this Local, else nil.
func (l *Local) find(h Handle) *slot {
	u := h.unit()
	if n := u / units; int(n/64) >= len(l.own) || l.own[n/64]&(1<<(n%64)) == 0 {
		return nil // and its chunk is not ours to look at
	}
	if s := &l.slots[u]; s.is(h.generation()) {
		return s
	}
	return nil
}

func (l *Local) slotsOf(n int32) []slot { return l.slots[int(n)*units:][:units:units] }

// at returns the bytes of a slot of that class.
func (l *Local) at(h Handle, c class) []byte {
	from, n := int(h.unit())*MinSlot, c.bytes()
	return l.bytes[from : from+n : from+n]
}

// refill puts a chunk on the empty list of class c and returns it: the Local's empty chunk, or
// else a chunk of the arena.
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

// emptied is called after the last slot of a chunk was put. It keeps the chunk, or gives it
// back if the Local has an empty chunk already. If the kept chunk is the only one of its
// class with room, it stays on the list of its class. Otherwise it leaves the list: chunks
// in use are filled first, so that the empty chunk may serve another class.
func (l *Local) emptied(n int32) {
	if l.empty != none {
		l.unlist(n)
		l.release(n)
		return
	}
	l.empty = n
	switch list := &l.room[l.chunks[n].class]; {
	case list.first == none:
		list.push(l.chunks, n) // it was full until now
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

// trim gives the empty chunk back that the Local keeps, if any.
func (l *Local) trim() {
	if l.depot != nil && l.empty != none {
		l.unlist(l.empty)
		l.release(l.empty)
		l.empty = none
	}
	l.Flush()
}

// Release gives back the slot in which a piece of memory begins, as Put does: the whole slot,
// wherever in it the piece lies. It is for receivers of memory without its handle, such as a
// vecio.Writer. If the piece belongs to no slot in use of this Local, nothing is changed, and
// [Stats].Stale counts it. If the slot was put and handed out again, the two leases look the
// same: so call either Release or Put, exactly once.
func (l *Local) Release(piece []byte) {
	h, ok := l.handleOf(piece)
	if !ok {
		_ = l.staled()
		return
	}
	_ = l.Put(h) // which counts stale ones
}

// handleOf returns the handle of the lease of the slot in which a piece begins.
func (l *Local) handleOf(piece []byte) (Handle, bool) {
	// Two addresses are compared, and none is made of the difference.
	offset := uintptr(unsafe.Pointer(unsafe.SliceData(piece))) - uintptr(unsafe.Pointer(unsafe.SliceData(l.bytes)))
	if cap(piece) == 0 || offset >= uintptr(len(l.bytes)) {
		return 0, false
	}
	n := uint32(offset / ChunkSize)
	if l.own[n/64]&(1<<(n%64)) == 0 {
		return 0, false // and its chunk is not ours to look at
	}
	u := uint32(offset/MinSlot) &^ (1<<l.chunks[n].class - 1)
	return handleOf(u, l.slots[u].generation), true
}
