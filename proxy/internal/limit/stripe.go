package limit

import "sync"

// A stripe is a part of the connections that are counted: each with all of its address, so
// that the definition of one source can change. The place of a connection does not depend on
// that.
type stripe struct {
	mu   sync.Mutex // held before that of a shard
	held []holding  // never shrinks; a connection's Entry is an index of it
	free int32      // the first that is not used
	_    [128]byte  // its own cache lines
}

// A holding is a connection.
type holding struct {
	of    key    // all of its address
	place uint32 // in the table; 0: it is not used
	next  int32  // the next one that is not
}

// hold takes one for a connection. The caller holds p.mu.
func (p *stripe) hold(k key, place uint32) int32 {
	i := p.free
	if i == none {
		i = int32(len(p.held))
		p.held = append(p.held, holding{})
	} else {
		p.free = p.held[i].next
	}
	p.held[i] = holding{of: k, place: place}
	return i
}

// letGo returns the place of the connection that has had one, 0 if none has: it is given back
// for the second time, which is a bug of the caller, and must not cost other sources. The
// caller holds p.mu.
func (p *stripe) letGo(i int32) (place uint32) {
	if int(i) >= len(p.held) || p.held[i].place == 0 {
		return 0
	}
	place = p.held[i].place
	p.held[i] = holding{next: p.free}
	p.free = i
	return place
}
