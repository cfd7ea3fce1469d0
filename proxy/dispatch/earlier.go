package dispatch

import (
	"errors"

	"github.com/penstock/penstock/proxy/balance"
)

// Who waits for room at a fallback waits at the upstreams before it, too, and takes what is free
// first: so none of them is idle while clients that were meant for it wait. Each has a place in
// each of these queues, and whoever has the turn in one can use what that one's upstream has.

// An earlier is a client's place in the queue of an upstream before the one that it waits at.
type earlier struct {
	view  *View
	place waiter
}

// joinEarlier has a client that has begun to wait at its view wait at those before it.
func (s *Search) joinEarlier() {
	for v := s.root; v != nil && v != s.view; v = v.Fallback {
		e := &earlier{view: v}
		s.earlier = append(s.earlier, e)
		v.up.queue.join(&e.place, s.waker(), 1<<62)
		v.up.queue.next() // there may be room since it was looked for
	}
}

// pickEarlier looks for room at the upstreams before the one that the client waits at, if it is
// its turn there.
func (s *Search) pickEarlier(now int64) bool {
	at := s.view
	for _, e := range s.earlier {
		q := &e.view.up.queue
		for q.turnOf(&e.place) {
			s.view = e.view
			err := s.pick(now)
			if err == nil {
				at.up.queue.leave(&s.place)
				s.leaveEarlier()
				return true
			}
			s.yield(now)
			s.view = at
			again := q.stay(&e.place)
			if again && !errors.Is(err, balance.ErrFull) { // what there is room for is not for it
				again = false
				q.stay(&e.place)
			}
			if !again {
				break
			}
		}
	}
	return false
}

// leaveEarlier is the end of waiting there.
func (s *Search) leaveEarlier() {
	for _, e := range s.earlier {
		e.view.up.queue.leave(&e.place)
	}
	clear(s.earlier)
	s.earlier = s.earlier[:0]
}
