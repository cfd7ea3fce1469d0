package dispatch

import (
	"errors"
	"time"

	"github.com/penstock/penstock/proxy/balance"
	"github.com/penstock/penstock/proxy/health"
)

// Who waits for room at a fallback waits at the upstreams before it, too, and takes what is free
// first: so none of them is idle while clients that were meant for it wait. Each has a place in
// each of these queues, and whoever has the turn in one can use what that one's upstream has.

// An earlier is a client's place in the queue of an upstream before the one that it waits at.
type earlier struct {
	view  *View
	place waiter
	due   int64 // clock, when an endpoint may be tried that is failing; 0: there is none to be had
}

// errFailing says that there is room at none but an endpoint that is failing, for which it is not time.
var errFailing = errors.New("it is not yet time to try a failing endpoint again")

// joinEarlier has a client that has waited at its view since a time wait at those before it, for as long
// or, where it has waited itself, longer.
func (s *Search) joinEarlier(since int64) {
	for v := s.root; v != nil && v != s.view; v = v.Fallback {
		e := &earlier{view: v}
		s.earlier = append(s.earlier, e)
		at := s.visited(&v.up.queue)
		if at == 0 {
			at = since
		}
		if v.up.queue.rejoin(&e.place, s.waker(), at) {
			e.due = 1 // long ago: another one may have the turn, and no use for it
		}
		v.up.queue.next() // there may be room since it was looked for
	}
}

// pickEarlier looks for room at the upstreams before the one that the client waits at, if it is
// its turn there.
func (s *Search) pickEarlier(now int64) bool {
	at, kept, round := s.view, s.passage, s.round
	for _, e := range s.earlier {
		q := &e.view.up.queue
		if e.due != 0 && e.due <= now && !q.claim(&e.place) && !q.isFirst(&e.place) {
			e.due = 0 // it is asked when it is the first
		}
		for q.turnOf(&e.place) {
			s.view, s.passage, s.round = e.view, passage{}, len(s.tried)
			trial, err := s.pickFree(e, now)
			if err == nil {
				if waits := s.place.in.Load(); waits != nil {
					waits.leave(&s.place)
				}
				s.leaveEarlier()
				if s.back, s.trial = trial, trial; trial {
					s.retries = s.view.Attempts
				}
				return true
			}
			s.yield(now)
			s.view, s.passage, s.round = at, kept, round
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

// untilEarlier is how long a client waits, at most left, until it looks again by itself.
func (s *Search) untilEarlier(left time.Duration, now int64) time.Duration {
	for _, e := range s.earlier {
		if e.due != 0 {
			left = min(left, max(time.Duration(e.due-now), time.Millisecond))
		}
	}
	return left
}

// pickFree is pick for a client that waits at one before its view. An endpoint that is failing is tried at
// intervals, however many wait; trial says that this is one of these.
func (s *Search) pickFree(at *earlier, now int64) (trial bool, err error) {
	at.due = 0
	if err = s.pick(now); err != nil || !s.endpoint.Failing() {
		return false, err
	}
	if s.endpoint.claimTrial(now) {
		return true, nil
	}
	due := s.endpoint.trials.due.Load()
	s.settle(health.Unknown, now)
	s.attempt = attempt{failed: s.failed[:0]}
	set := s.view.Set()
	r := s.request()
	r.Which = balance.Working
	if b, err := set.Pick(&r); err == nil && s.admit(b, s.view.up.panicking(set), now) {
		return false, nil
	}
	at.due = max(due, now+1)
	return false, errFailing
}

// claimTrial reports whether an endpoint that is failing may be tried, and has others wait for that.
func (e *Endpoint) claimTrial(now int64) bool {
	due := e.trials.due.Load()
	if due > now || !e.trials.due.CompareAndSwap(due, now+int64(trialPending)) {
		return false
	}
	e.trials.began.Store(now)
	return true
}

// leaveEarlier is the end of waiting there.
func (s *Search) leaveEarlier() {
	for _, e := range s.earlier {
		e.view.up.queue.leave(&e.place)
	}
	clear(s.earlier)
	s.earlier = s.earlier[:0]
}
