package evring

import "runtime"

// maxClaims bounds how often one push competes with other producers. A lost claim means that another producer
// has won. So many losses in a row mean that a peer manipulates the tail.
const maxClaims = 1 << 12

// Push appends a copy of an event. It returns ErrFull if there is no room now (or if other producers were faster
// thousands of times), ErrTooLong if the event can never fit, and otherwise the result of Err.
func (r *Ring) Push(event []byte) error {
	one := [1][]byte{event}
	_, err := r.PushBatch(one[:])
	return err
}

// PushBatch appends copies of as many events as there is room for, in order and without other events between
// them, and returns their number. If there is no room for all, the error is ErrFull; with any other error of
// Push, the number is 0. The consumer sees all pushed events at once, and is woken once.
func (r *Ring) PushBatch(events [][]byte) (int, error) {
	for _, e := range events {
		if len(e) > r.EventSize() && r.slotSize > 0 { // otherwise it is the zero Ring
			return 0, ErrTooLong
		}
	}
	pos, n, err := r.claim(len(events))
	if n > 0 {
		r.publish(pos, events[:n])
		if ticket := r.memory.asleep().Load(); ticket != 0 {
			r.wake(ticket)
		}
	}
	runtime.KeepAlive(r) // keeps the mapping
	return n, err
}

// claim takes positions for up to want events.
func (r *Ring) claim(want int) (pos uint64, n int, err error) {
	if err := r.Err(); err != nil || want == 0 {
		return 0, 0, err
	}
	if r.single && !r.joined {
		r.join()
	}
	for range maxClaims {
		pos = r.memory.tail().Load()
		n, err = r.room(pos, want)
		if n < 0 {
			continue
		}
		if n == 0 || r.single || r.memory.tail().CompareAndSwap(pos, pos+uint64(n)) {
			return pos, n, err
		}
	}
	return 0, 0, ErrFull
}

// room returns how many of want events fit at the tail pos, or a negative number if the tail has moved meanwhile.
func (r *Ring) room(pos uint64, want int) (int, error) {
	used := pos - r.headSeen.Load()
	if used > r.slots || used+uint64(want) > r.slots {
		head := r.memory.head().Load()
		used = pos - head
		if used > r.slots {
			// The head was read after the tail. If the tail has not moved since, both had these values at one
			// moment, which is impossible in a correct ring. If the tail has moved, the consumer may have
			// consumed the new events meanwhile.
			if r.memory.tail().Load() != pos {
				return -1, nil
			}
			return 0, r.fail(statePositions)
		}
		r.headSeen.Store(head)
		r.follow()
	}
	if free := int(r.slots - used); free < want {
		return free, ErrFull
	}
	return want, nil
}

// publish fills the slots from pos on, and then shows them to the consumer. The consumer looks at slots in
// order, so storing the word of the first slot last is enough.
func (r *Ring) publish(pos uint64, events [][]byte) {
	for i := len(events) - 1; i >= 0; i-- {
		at := r.offset(pos + uint64(i))
		word := r.word(pos+uint64(i), len(events[i]))
		copy(r.memory[at+wordSize:at+r.slotSize], events[i])
		if i > 0 {
			r.memory.plain64(at, word)
			continue
		}
		r.lead()
		r.memory.word64(at).Store(word)
	}
	if r.single {
		r.memory.tail().Store(pos + uint64(len(events)))
	}
}

// join takes over from an earlier Single producer. The tail is stored after the events are published, so a
// producer that died in between has left events past the tail. A producer that died while it published a batch
// may have left words without the first one: these events do not count, and join clears their words.
func (r *Ring) join() {
	pos := r.memory.tail().Load()
	for range r.slots {
		if !r.shown(pos) {
			break
		}
		pos++
	}
	for p := pos; p != pos+r.slots; p++ {
		if r.shown(p) {
			r.memory.word64(r.offset(p)).Store(uint64(r.lap(p)-1) << 32)
		}
	}
	r.memory.tail().Store(pos)
	r.joined = true
}

// shown reports whether the slot of a position has the word of an event of that position.
func (r *Ring) shown(pos uint64) bool {
	return uint32(r.memory.word64(r.offset(pos)).Load()>>32) == r.lap(pos)
}
