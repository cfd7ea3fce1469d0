package router

import "time"

// A visit is a queue that a client has waited in, and the clock since when.
type visit struct {
	of    *queue
	since int64
}

// visited returns since when a client has waited in a queue, whether or not it does now; 0: it has
// not.
func (s *Search) visited(q *queue) int64 {
	for i := range s.visits {
		if s.visits[i].of == q {
			return s.visits[i].since
		}
	}
	return 0
}

// enqueue has a client wait in a queue: where it was if it has before, and otherwise as the last, unless
// most wait already.
func (s *Search) enqueue(q *queue, most, now int64) bool {
	if since := s.visited(q); since != 0 {
		q.rejoin(&s.place, s.waker(), since)
		return true
	}
	if !q.join(&s.place, s.waker(), most, now) {
		return false
	}
	s.visits = append(s.visits, visit{q, now})
	s.client.Record.Enqueued(q.waiting.Load() - 1)
	return true
}

// timeInQueue is how much longer the client may wait for room.
func (s *Search) timeInQueue(now int64) time.Duration {
	u := s.snapshot.upstream
	return time.Duration(s.visited(&u.queue) + int64(s.snapshot.times().QueueTimeout) - now)
}
