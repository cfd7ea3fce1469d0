package evring

import (
	"fmt"
	"sync/atomic"
	"unsafe"
)

// The layout of the memory, in bytes, in the machine's byte order, because both sides run on one machine. Cache
// lines come in pairs, because processors fetch them in pairs.
//
//	  0  magic, slots, slotSize, producers   written once, copied when opened
//	128  tail    the next position to claim  producers
//	256  head    the next one to consume     the consumer
//	384  asleep  a ticket, or 0              the consumer; producers take it down
//	512  slots   a word, then the event      producers
//
// A position counts events since the beginning, modulo 2^64. Its lowest bits are the slot, the others the lap.
// The word of a slot holds lap+1 and the length of the event: memory that is all zero is a ring before its
// first lap.
const (
	magicAt     = 0
	slotsAt     = 8
	slotSizeAt  = 12
	producersAt = 16
	tailAt      = 128
	headAt      = 256
	asleepAt    = 384
	headerSize  = 512

	wordSize = 8
	magic    = 0x70656e72696e6731 // "penring1"
)

// memory is the mapping. It holds no Go pointers. It begins at a cache line, so every offset used here is
// aligned to its type. Indexing checks only that the first byte of a field is inside; no field crosses a cache
// line, so the rest is inside too.
type memory []byte

func (m memory) word64(off int) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&m[off]))
}

func (m memory) word32(off int) *atomic.Uint32 {
	return (*atomic.Uint32)(unsafe.Pointer(&m[off]))
}

// plain64 stores without order, for words that a later atomic store publishes.
func (m memory) plain64(off int, v uint64) { *(*uint64)(unsafe.Pointer(&m[off])) = v }

func (m memory) tail() *atomic.Uint64   { return m.word64(tailAt) }
func (m memory) head() *atomic.Uint64   { return m.word64(headAt) }
func (m memory) asleep() *atomic.Uint32 { return m.word32(asleepAt) }

// describe writes the header of a new ring.
func (m memory) describe(s shape) {
	m.word32(slotsAt).Store(uint32(s.slots))
	m.word32(slotSizeAt).Store(uint32(s.slotSize))
	if s.single {
		m.word32(producersAt).Store(uint32(Single))
	}
	m.word64(magicAt).Store(magic)
}

// offset returns where the slot of a position begins.
func (r *Ring) offset(pos uint64) int { return headerSize + int(pos&(r.slots-1))*r.slotSize }

// lap returns the upper half of the word that publishes a slot at a position.
func (r *Ring) lap(pos uint64) uint32 { return uint32(pos>>(r.shift&63)) + 1 }

// word returns the word of a slot with a published event of n bytes at a position.
func (r *Ring) word(pos uint64, n int) uint64 { return uint64(r.lap(pos))<<32 | uint64(n) }

// read checks the header of memory that another Ring has made.
func (m memory) read() (shape, error) {
	if m.word64(magicAt).Load() != magic {
		return shape{}, fmt.Errorf("%w: it does not begin with the header of a ring", ErrCorrupt)
	}
	producers := Producers(m.word32(producersAt).Load())
	if producers > Single {
		return shape{}, fmt.Errorf("%w: its header has producers of kind %d", ErrCorrupt, producers)
	}
	s, err := newShape(int64(m.word32(slotsAt).Load()), int64(m.word32(slotSizeAt).Load()), producers)
	if err != nil {
		return shape{}, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if s.bytes() != len(m) {
		return shape{}, fmt.Errorf("%w: it has %d bytes, and its header says %d", ErrCorrupt, len(m), s.bytes())
	}
	return s, nil
}
