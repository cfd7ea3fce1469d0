package lane

import "math/bits"

// freeSlots are the slots that are free, a bit each.
type freeSlots struct {
	words []uint64
	n     int // how many there are
	at    int // the word of the last one that was taken or given back
}

func newFreeSlots(size uint32) freeSlots { return freeSlots{words: make([]uint64, (int(size)+63)/64)} }

// give frees a slot.
func (f *freeSlots) give(slot uint32) {
	f.at = int(slot / 64)
	f.words[f.at] |= 1 << (slot % 64)
	f.n++
}

// next returns a free slot, which stays free; false: none is. It is the same until take or give.
func (f *freeSlots) next() (slot uint32, ok bool) {
	if f.n == 0 {
		return 0, false
	}
	for f.words[f.at] == 0 {
		f.at = (f.at + 1) % len(f.words)
	}
	return uint32(f.at*64 + bits.TrailingZeros64(f.words[f.at])), true
}

// take takes a free slot.
func (f *freeSlots) take(slot uint32) {
	f.words[slot/64] &^= 1 << (slot % 64)
	f.n--
}
