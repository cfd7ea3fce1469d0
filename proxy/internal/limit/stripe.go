package limit

import (
	"encoding/binary"
	"iter"
	"sync"
)

// A stripe is a part of the connections that are counted: each with all of its address, so
// that the definition of one source can change. The place of a connection does not depend on
// that.
type stripe struct {
	mu   sync.Mutex  // held before that of a shard
	held []*holdings // never shrinks; a connection's Entry is an index of all that are in it
	used int32       // of them, from the first one on
	free int32       // the first of these that is free
	_    [128]byte   // its own cache lines
}

// holdings are made at a time: as many as fill a size class of the runtime, 1 KiB.
type holdings [51]holding

// A holding is a connection. Every one that rests has one, so it takes 20 bytes.
type holding struct {
	of    [16]byte // all of its address, or the number of its user; the next free one, where it is free
	place uint32   // in the table, and ofUnix; 0: it is free
}

// ofUnix is of a connection of a unix socket. It is above every place: a table of the most entries has 26 bits of them.
const ofUnix = 1 << 31

// key returns what the connection is counted by, without the hash.
func (h *holding) key() key {
	return key{hi: binary.BigEndian.Uint64(h.of[:8]), lo: binary.BigEndian.Uint64(h.of[8:]), unix: h.place&ofUnix != 0}
}

// inTable returns its place in the table.
func (h *holding) inTable() uint32 { return h.place &^ ofUnix }

// move gives it another one.
func (h *holding) move(place uint32) { h.place = h.place&ofUnix | place }

// at returns the holding of an index below used.
func (p *stripe) at(i int32) *holding {
	const each = int32(len(holdings{}))
	return &p.held[i/each][i%each]
}

// all yields the connections. The caller holds p.mu.
func (p *stripe) all() iter.Seq[*holding] {
	return func(yield func(*holding) bool) {
		for i := range p.used {
			if h := p.at(i); h.place > 0 && !yield(h) {
				return
			}
		}
	}
}

// hold takes a holding for a connection. The caller holds p.mu.
func (p *stripe) hold(k key, place uint32) int32 {
	i := p.free
	if i == none {
		i = p.used
		if int(i) == len(p.held)*len(holdings{}) {
			p.held = append(p.held, new(holdings))
		}
		p.used++
	} else {
		p.free = int32(binary.BigEndian.Uint32(p.at(i).of[:]))
	}
	h := p.at(i)
	binary.BigEndian.PutUint64(h.of[:8], k.hi)
	binary.BigEndian.PutUint64(h.of[8:], k.lo)
	if h.place = 0; k.unix {
		h.place = ofUnix
	}
	h.move(place)
	return i
}

// letGo returns the place of the connection that has had a holding, 0 if none has: it is given back
// for the second time, which is a bug of the caller, and must not cost other sources. The
// caller holds p.mu.
func (p *stripe) letGo(i int32) (place uint32) {
	if i >= p.used || p.at(i).place == 0 {
		return 0
	}
	h := p.at(i)
	place = h.inTable()
	*h = holding{}
	binary.BigEndian.PutUint32(h.of[:], uint32(p.free))
	p.free = i
	return place
}
