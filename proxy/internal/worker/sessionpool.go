package worker

import (
	"math"

	"github.com/penstock/penstock/relay"
)

const (
	// sessionsPerSlab has a slab of sessions fill a size class of the runtime, 8 KiB.
	sessionsPerSlab = 29
	// spareSlabs is how many slabs without a session are kept.
	spareSlabs = 8
)

// A sessionPool is the relay's parts of a worker's sessions in user space, in slabs: those of sessions that have left for long are given
// up (see lanePark), so a slab without a session is, too.
type sessionPool struct {
	slabs []*sessionSlab // by number; nil: it was given up
	gone  []int32        // numbers of those
	open  []int32        // numbers of those with a free session
	empty int            // how many have no session
}

// A sessionSlab is some sessions.
type sessionSlab struct {
	sessions [sessionsPerSlab]relay.Driven
	free     [sessionsPerSlab]uint8 // places of the first left of them
	left     uint8
	at       int32 // in sessionPool.open
}

// take returns a free session, and the number of its slab.
func (t *sessionPool) take() (*relay.Driven, int32) {
	if len(t.open) == 0 {
		t.grow()
	}
	last := len(t.open) - 1
	number := t.open[last]
	s := t.slabs[number]
	if s.left == sessionsPerSlab {
		t.empty--
	}
	s.left--
	d := &s.sessions[s.free[s.left]]
	if s.left == 0 {
		t.open = t.open[:last]
	}
	return d, number
}

func (t *sessionPool) grow() {
	s := &sessionSlab{left: sessionsPerSlab}
	for i := range s.sessions {
		s.free[i] = uint8(sessionsPerSlab - 1 - i)
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

// opened notes that a slab has a free session.
func (t *sessionPool) opened(s *sessionSlab, number int32) {
	s.at = int32(len(t.open))
	t.open = append(t.open, number)
}

// placeOf returns the place of a session of the slab.
func (s *sessionSlab) placeOf(d *relay.Driven) uint8 {
	for i := range s.sessions {
		if &s.sessions[i] == d {
			return uint8(i)
		}
	}
	return 0 // it is one of them
}

// give takes back a session of a slab. It may still be looked at.
func (t *sessionPool) give(d *relay.Driven, number int32) {
	s := t.slabs[number]
	s.free[s.left] = s.placeOf(d)
	if s.left++; s.left == 1 {
		t.opened(s, number)
	}
	if s.left < sessionsPerSlab {
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
