package worker

import (
	"math"

	"github.com/penstock/penstock/relay"
)

const (
	// seatsPerSlab has a slab of seats fill a size class of the runtime, 8 KiB.
	seatsPerSlab = 29
	// spareSlabs is how many slabs without a session are kept.
	spareSlabs = 8
)

// seats are the relay's parts of a worker's sessions in user space, in slabs: those of sessions that have left for long are given
// up (see lanePark), so a slab without a session is, too.
type seats struct {
	slabs []*seatSlab // by number; nil: it was given up
	gone  []int32     // numbers of those
	open  []int32     // numbers of those with a free seat
	empty int         // how many have no session
}

// A seatSlab is some seats.
type seatSlab struct {
	seats [seatsPerSlab]relay.Driven
	free  [seatsPerSlab]uint8 // places of the first left of them
	left  uint8
	at    int32 // in seats.open
}

// take returns a free seat, and the number of its slab.
func (t *seats) take() (*relay.Driven, int32) {
	if len(t.open) == 0 {
		t.grow()
	}
	last := len(t.open) - 1
	number := t.open[last]
	s := t.slabs[number]
	if s.left == seatsPerSlab {
		t.empty--
	}
	s.left--
	d := &s.seats[s.free[s.left]]
	if s.left == 0 {
		t.open = t.open[:last]
	}
	return d, number
}

func (t *seats) grow() {
	s := &seatSlab{left: seatsPerSlab}
	for i := range s.seats {
		s.free[i] = uint8(seatsPerSlab - 1 - i)
	}
	number := int32(min(len(t.slabs), math.MaxInt32)) // descriptors end long before
	if last := len(t.gone) - 1; last >= 0 {
		number, t.gone = t.gone[last], t.gone[:last]
		t.slabs[number] = s
	} else {
		t.slabs = append(t.slabs, s)
	}
	t.empty++
	t.opened(s, number)
}

// opened notes that a slab has a free seat.
func (t *seats) opened(s *seatSlab, number int32) {
	s.at = int32(len(t.open))
	t.open = append(t.open, number)
}

// placeOf returns the place of a seat of the slab.
func (s *seatSlab) placeOf(d *relay.Driven) uint8 {
	for i := range s.seats {
		if &s.seats[i] == d {
			return uint8(i)
		}
	}
	return 0 // it is one of them
}

// give takes back a seat of a slab. It may still be looked at.
func (t *seats) give(d *relay.Driven, number int32) {
	s := t.slabs[number]
	s.free[s.left] = s.placeOf(d)
	if s.left++; s.left == 1 {
		t.opened(s, number)
	}
	if s.left < seatsPerSlab {
		return
	}
	if t.empty++; t.empty > spareSlabs {
		t.empty--
		last := t.open[len(t.open)-1]
		t.open[s.at], t.slabs[last].at = last, s.at
		t.open = t.open[:len(t.open)-1]
		t.slabs[number], t.gone = nil, append(t.gone, number)
	}
}
