package arena

// refill puts a chunk of class c on its list, which is empty, and returns it: the
// one that is empty, which is not empty any more then, else one of the arena's.
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

// emptied keeps a chunk after its last slot was put, or gives it back if there is one. A chunk
// that is kept stays where its class finds it, if it is the only one of its class with room,
// and leaves the list otherwise: a chunk that is in use goes first, so that the empty one may
// serve another class.
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

// Trim gives the empty chunk back that the Local keeps, if any, and calls Flush. It is for a
// Local that will not be used for a while: with the budget spent, another one may lack its
// chunk.
func (l *Local) Trim() {
	if l.depot != nil && l.empty != none {
		l.unlist(l.empty)
		l.release(l.empty)
		l.empty = none
	}
	l.Flush()
}
