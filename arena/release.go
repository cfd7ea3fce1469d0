package arena

import "unsafe"

// Release gives back the slot in which a piece of memory begins, as Put does: the whole slot,
// wherever in it the piece lies. It is for receivers of memory without its handle, such as a
// vecio.Writer. A piece that is not from a slot that is out of this Local changes nothing, and
// is counted in [Stats].Stale. A slot that was put and is out again since looks like the first
// lease: Release exactly once, or Put.
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
