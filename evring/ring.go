package evring

import (
	"errors"
	"fmt"
	"math/bits"
	"sync/atomic"

	"github.com/penstock/penstock/internal/closed"
)

// Defaults and limits.
const (
	DefaultSlots    = 1024
	DefaultSlotSize = CacheLine

	// CacheLine is the alignment of the slots, in bytes.
	CacheLine = 64

	// MaxBytes limits the total size of the slots, even in a ring that a peer made.
	MaxBytes = 256 << 20
)

// Errors that callers act upon.
var (
	// ErrFull: there is no room now for the events that were not pushed. Nothing is ever overwritten, and a
	// producer is not told when there is room again.
	ErrFull = errors.New("penstock: evring: the ring is full")

	// ErrTooLong: an event does not fit into a slot. It was not pushed.
	ErrTooLong = errors.New("penstock: evring: the event is longer than a slot")

	// ErrCorrupt: the shared memory contradicts itself, because a peer has crashed midway or is hostile. From
	// then on the Ring always returns it.
	ErrCorrupt = errors.New("penstock: evring: the shared memory is corrupt")

	// ErrUnsealed: other processes could cut the memory short.
	ErrUnsealed = errors.New("penstock: evring: the memory is not sealed")

	// ErrClosed: the Ring is closed. It matches os.ErrClosed.
	ErrClosed error = closed.Error("penstock: evring: the ring is closed, or was not made by New or Open")
)

// Producers says how many producers may push at a time.
type Producers uint32

const (
	// Multi: any number of goroutines, in any number of processes.
	Multi Producers = iota

	// Single: one goroutine at a time, in one process at a time. Pushing a single event costs less, and a
	// producer that dies in the middle of a push leaves no gap: the next producer continues there.
	Single
)

// Config describes a new ring. The zero value is a ring for many producers, with DefaultSlots slots of one
// cache line.
type Config struct {
	// Slots is how many events fit. It must be a power of two. 0 means DefaultSlots.
	Slots int

	// SlotSize is the memory of one event in bytes, 8 more than the largest event (see EventSize): a multiple of
	// CacheLine, so that no two events share a cache line; or 16 or 32, which are faster for many events on a
	// quiet machine. 0 means DefaultSlotSize.
	SlotSize int

	// Producers says how many goroutines and processes may push.
	Producers Producers

	// Name is the name of the memory in /proc/PID/maps. It may be empty.
	Name string
}

// shape is what never changes in a ring: a private copy, checked once.
type shape struct {
	slots    uint64 // a power of two
	shift    int    // slots is 1 << shift
	slotSize int    // a divisor or a multiple of CacheLine: no word crosses a line
	single   bool
}

// shape checks the configuration and applies the defaults.
func (c *Config) shape() (shape, error) {
	if c == nil {
		c = &Config{}
	}
	slots, size := c.Slots, c.SlotSize
	if slots == 0 {
		slots = DefaultSlots
	}
	if size == 0 {
		size = DefaultSlotSize
	}
	if c.Producers > Single {
		return shape{}, fmt.Errorf("penstock: evring: Producers is %d: write Single or Multi", c.Producers)
	}
	return newShape(int64(slots), int64(size), c.Producers)
}

func newShape(slots, size int64, p Producers) (shape, error) {
	switch {
	case slots < 1 || slots&(slots-1) != 0:
		return shape{}, fmt.Errorf("penstock: evring: Slots is %d: write a power of two, such as %d", slots, powerOfTwo(slots))
	case size != 16 && size != 32 && (size < CacheLine || size%CacheLine != 0):
		return shape{}, fmt.Errorf("penstock: evring: SlotSize is %d: write 16, 32, or a multiple of %d, such as %d", size, CacheLine, lines(size))
	case size > MaxBytes || slots > MaxBytes/size:
		return shape{}, fmt.Errorf("penstock: evring: %d slots of %d bytes: write fewer or smaller slots, at most %d MiB in all", slots, size, MaxBytes>>20)
	}
	return shape{uint64(slots), bits.TrailingZeros64(uint64(slots)), int(size), p == Single}, nil
}

// powerOfTwo returns an allowed power of two near n.
func powerOfTwo(n int64) int64 {
	n = min(max(n, 1), MaxBytes/CacheLine)
	return 1 << bits.Len64(uint64(n-1))
}

// lines returns the next allowed multiple of a cache line.
func lines(size int64) int64 {
	size = min(max(size, 1), MaxBytes)
	return (size + CacheLine - 1) / CacheLine * CacheLine
}

// bytes returns the size of the file.
func (s shape) bytes() int { return headerSize + int(s.slots)*s.slotSize }

// Ring is one side's access to a ring, often from another process. Make it with [New] or [Open]: the zero Ring
// is closed. Push and PushBatch are safe for concurrent use unless the ring is for a Single producer; Drain,
// Sleep and Awake belong to one goroutine at a time; Close may be called at any time.
//
// The mapping is unmapped when the Ring is closed and has been collected, so that a Push that runs meanwhile
// does not fault.
type Ring struct {
	shape
	memory memory // shared; owned by the Ring, unmapped by its cleanup

	// Shared by the producers of this process. A position only grows, so a head that was read earlier can hide
	// free slots but cannot invent any.
	_        [CacheLine]byte
	headSeen atomic.Uint64
	joined   bool // Single only: push has looked for events of a dead producer

	// Used by the consumer.
	_       [CacheLine]byte
	scratch []byte // private copy of an event
	ticket  uint32 // of the last sleep

	// Rarely changed.
	_     [CacheLine]byte
	state atomic.Uint32 // an index into states
	descriptors
	order
}

// states are the errors that a Ring stays with.
var states = [...]error{
	ErrClosed,
	nil,
	fmt.Errorf("%w: its head and its tail do not belong together", ErrCorrupt),
	fmt.Errorf("%w: a slot has a sequence number of another lap", ErrCorrupt),
	fmt.Errorf("%w: an event is longer than its slot", ErrCorrupt),
}

const (
	stateClosed = iota // also of the zero Ring
	stateOpen
	statePositions
	stateLap
	stateLength
)

// fail makes the Ring stay in a state and returns its error, or the error of an earlier state.
func (r *Ring) fail(state uint32) error {
	r.state.CompareAndSwap(stateOpen, state)
	return states[r.state.Load()]
}

// Err returns the error with which every push and pop fails from now on: ErrClosed, or an error that matches
// ErrCorrupt. nil: they do not.
func (r *Ring) Err() error { return states[r.state.Load()] }

// EventSize returns how many bytes an event may have.
func (r *Ring) EventSize() int { return max(r.slotSize-wordSize, 0) }

// newRing returns a Ring on a checked memory, without descriptors.
func newRing(s shape, m memory) *Ring {
	r := &Ring{shape: s, memory: m, scratch: make([]byte, s.slotSize-wordSize)}
	r.state.Store(stateOpen)
	return r
}
