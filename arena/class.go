package arena

import "math/bits"

// A class is a size of slots: MinSlot shifted by its number.
type class uint8

const (
	minShift = 8                           // of MinSlot
	classes  = 9                           // from MinSlot to MaxSlot
	units    = ChunkSize / MinSlot         // of a chunk
	_        = uint(MinSlot>>minShift - 1) // it is
	_        = uint(MaxSlot>>(minShift+classes-1) - 1)
)

// classOf returns the smallest class for size bytes, which is from 1 to MaxSlot.
func classOf(size int) class {
	return class(bits.Len(uint(max(size, MinSlot)-1)) - minShift)
}

// bytes returns the size of a slot.
func (c class) bytes() int { return MinSlot << c }

// slots returns how many there are in a chunk.
func (c class) slots() uint16 { return units >> c }
