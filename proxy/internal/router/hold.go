package router

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/proxy/internal/lb"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// hold has a client wait that no endpoint can serve now, if it may, until one can. It has no
// place under the breaker's bounds meanwhile: others make the trials.
func (s *Search) hold(err error, now int64) bool {
	snap := s.snapshot
	s.rest(now)
	if snap.times().Hold <= 0 || isFull(err) {
		return false
	}
	if snap.upstream.held.waiting.Load() == 0 {
		snap.upstream.heldFull.Store(false) // which was found of others
	}
	if s.patience(now) <= 0 || !s.enqueue(&snap.upstream.held, snap.QueueSize-snap.upstream.queue.waiting.Load(), now) {
		return false
	}
	if snap.upstream.heldFull.Load() {
		s.joinEarlierQueues(s.visited(&snap.upstream.held))
	} else if !s.held {
		s.held = true
		atomic.AddInt64(&snap.upstream.counts.Held, 1)
	}
	s.back = false
	s.cause, s.stage = err, holding
	return true
}

// isFull reports whether a client that is refused for an error is so because of limits, and
// not because of the states of endpoints.
func isFull(err error) bool {
	return errors.Is(err, lb.ErrFull) || errors.Is(err, ErrQueueFull) || errors.Is(err, ErrQueueTimeout)
}

// await has a client that is held look for an endpoint, when it is the first and a trial is due, or when
// it was woken. One that has found an endpoint wakes the next.
func (s *Search) await(now int64) (worker.Step, bool) {
	snap := s.snapshot
	q, left := &snap.upstream.held, s.patience(now)
	if l := s.elsewhere(); l != nil {
		s.leaveHeld()
		s.reroute(l, now)
		return worker.Step{}, false
	}
	if s.pickEarlier(left, now) {
		s.stage = connecting
		return worker.Step{}, false
	}
	if !q.has(&s.place) { // another one wanted it
		s.leaveEarlier()
		s.refuse(s.cause, s.full, now)
		return worker.Step{}, false
	}
	if left > 0 && !q.claim(&s.place) {
		if q.isFirst(&s.place) { // another one has the turn, which had looked before this one was back
			left = min(left, snap.upstream.untilTrial(now))
		}
		return worker.Step{Action: worker.Park, Timeout: left}, true
	}
	for looks := 1; ; looks++ {
		full, ok := s.pickLast(now)
		if ok {
			s.leaveHeld()
			s.stage = connecting
			return worker.Step{}, false
		}
		s.full = full
		snap.upstream.heldFull.Store(full)
		if !full {
			s.noteUnserved(now)
		} else if len(s.earlier) == 0 && q.isFirst(&s.place) { // it is asked when there is room, before clients that come
			s.joinEarlierQueues(s.visited(q))
		}
		if left = s.patience(now); left <= 0 || !q.stay(&s.place) {
			break
		}
		if looks == maxLooks {
			q.later(&s.place)
			break
		}
	}
	if left <= 0 {
		s.leaveHeld()
		if s.full { // an endpoint serves, and the clients that came before have had its room
			s.cause = ErrQueueTimeout
		}
		s.refuse(s.cause, s.full, now)
		return worker.Step{}, false
	}
	return worker.Step{Action: worker.Park, Timeout: s.untilTrials(min(left, snap.upstream.untilTrial(now)), now)}, true
}

// leaveHeld is the end of being held.
func (s *Search) leaveHeld() {
	if q := s.place.in.Load(); q != nil {
		q.leave(&s.place)
	}
	s.leaveEarlier()
}

// patience is how much longer a client is held: for as long as others wait for room if it is
// room that is missing.
func (s *Search) patience(now int64) time.Duration {
	times := s.snapshot.times()
	wait := times.Hold
	if s.full || s.snapshot.upstream.heldFull.Load() { // as the last one that looked has found
		wait = max(wait, times.QueueTimeout)
	}
	return time.Duration(s.failing + int64(wait) - now)
}

// untilTrial is when it is worth looking for an endpoint again without a wake-up.
func (u *Upstream) untilTrial(now int64) time.Duration {
	return min(max(time.Duration(u.trial.Load()-now), time.Millisecond), trialEvery)
}
