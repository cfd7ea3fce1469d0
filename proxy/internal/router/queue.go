package router

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/proxy/internal/fanout"
	"github.com/penstock/penstock/proxy/internal/health"
	"github.com/penstock/penstock/proxy/internal/lb"
	"github.com/penstock/penstock/proxy/internal/limit"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// A queue holds the clients that wait for room, first come, first served: a new client waits behind the others, and a
// client that comes back gets its old place. Waiting clients take its lock, and so do calls that report room while some
// wait.
type queue struct {
	places      *Places      // places that this queue shares with other queues; nil: any number
	waiting     atomic.Int64 // number of waiting clients, including the one with the turn
	mu          sync.Mutex
	first, last *waiter               // under mu
	lines       fanout.Lines[*waiter] // all clients, under mu
	turn        *waiter               // the client that was woken and has not looked yet; under mu
	again       bool                  // there was room again meanwhile; under mu
}

// A waiter is a client's place in a queue. Other clients use it later.
type waiter struct {
	waker      worker.Waker
	next, prev *waiter
	line       fanout.Place
	since      int64                 // clock, which orders the queue
	in         atomic.Pointer[queue] // nil while it is in none; eviction sets it to nil too
	woken      bool                  // has the turn; under the queue's mu
}

// Places bounds the clients of several queues together, whose places they share. The zero value is without a limit.
type Places struct {
	limit.Connections
	mu     sync.Mutex          // may be locked under a queue's mu
	queues map[*queue]struct{} // with clients
}

// note notes that a queue has got its first client, or has lost its last one.
func (p *Places) note(q *queue, clients bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !clients {
		delete(p.queues, q)
		return
	}
	if p.queues == nil {
		p.queues = make(map[*queue]struct{})
	}
	p.queues[q] = struct{}{}
}

// evict is [queue.evict] for the queue that has the source with the most clients.
func (p *Places) evict(from health.Source, more int) bool {
	p.mu.Lock()
	queues := slices.Collect(maps.Keys(p.queues))
	p.mu.Unlock()
	var fullest *queue
	most := more
	for _, q := range queues {
		q.mu.Lock()
		if n := q.lines.Most(); n > most {
			fullest, most = q, n
		}
		q.mu.Unlock()
	}
	if fullest == nil {
		return false
	}
	fullest.mu.Lock()
	defer fullest.mu.Unlock()
	return fullest.evict(from, more)
}

// join adds a client that comes now from a source. If most clients wait already, a client that has probably gone makes room.
// If none has, the source with the most waiting clients loses its newest client, unless the new client's source would then have as many.
func (q *queue) join(w *waiter, waker worker.Waker, from health.Source, most, now int64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for !q.take(most) {
		if most > 0 && q.evict(from, max(int(q.waiting.Load()-most)+1, 1)) {
			continue
		}
		if q.places == nil || q.waiting.Load() >= most {
			return false
		}
		own := q.lines.Len(uint64(from))
		q.mu.Unlock() // its clients may be the ones to go, and no two queues are locked at a time
		evicted := q.places.evict(from, own+1)
		q.mu.Lock()
		if !evicted {
			return false
		}
	}
	q.add(w, waker, from, now)
	return true
}

// rejoin adds a client that has waited since a time, however many wait. It reports whether the client is the first.
func (q *queue) rejoin(w *waiter, waker worker.Waker, from health.Source, since int64) (first bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.places != nil {
		q.places.Add()
	}
	q.add(w, waker, from, since)
	return q.first == w
}

// add adds a client behind all clients that have waited as long. The caller holds mu, and has a place for it. It
// searches from the end, where new clients belong, or from the beginning for clients that come back.
func (q *queue) add(w *waiter, waker worker.Waker, from health.Source, since int64) {
	prev, next := q.last, (*waiter)(nil)
	if prev != nil && prev.since > since {
		for next = q.first; next.since <= since; next = next.next {
		}
		prev = next.prev
	}
	w.waker, w.since, w.woken, w.prev, w.next = waker, since, false, prev, next
	w.line = q.lines.Add(uint64(from), w, func(o *waiter) bool { return o.since > since })
	w.in.Store(q)
	if prev != nil {
		prev.next = w
	} else {
		q.first = w
	}
	if next != nil {
		next.prev = w
	} else {
		q.last = w
	}
	if q.waiting.Add(1) == 1 && q.places != nil {
		q.places.note(q, true)
	}
}

func (q *queue) take(limit int64) bool {
	return q.waiting.Load() < limit && (q.places == nil || q.places.Take())
}

// evict removes a client that has probably gone, or else the newest client of the source with the most clients, if it has
// over more clients more than the source from. It reports whether it has removed one, which notices by [queue.has].
func (q *queue) evict(from health.Source, more int) bool {
	w := q.hungUp()
	if w == nil {
		w = q.lines.NewestOfMore(uint64(from), more, func(w *waiter) bool { return !w.woken })
	}
	if w == nil {
		return false
	}
	waker := w.waker
	q.remove(w)
	waker.Wake()
	return true
}

// maxLooked is how many clients hungUp looks at.
const maxLooked = 1024

func (q *queue) hungUp() *waiter {
	for w, n := q.first, 0; w != nil && n <= maxLooked; w, n = w.next, n+1 {
		if !w.woken && w.waker.HungUp() {
			return w
		}
	}
	return nil
}

func (q *queue) has(w *waiter) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return w.in.Load() == q
}

func (q *queue) isFirst(w *waiter) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.first == w
}

// next says that there may be room: the first client looks again.
func (q *queue) next() {
	if q.waiting.Load() == 0 {
		return
	}
	q.mu.Lock()
	q.wake()
	q.mu.Unlock()
}

// wake makes the first client look again, or notes that there was room while it looks.
func (q *queue) wake() {
	switch {
	case q.turn != nil:
		q.again = true
	case q.first != nil:
		q.turn, q.first.woken = q.first, true
		q.first.waker.Wake()
	}
}

// wakeAll makes all clients look again, and gives none of them the turn.
func (q *queue) wakeAll() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for w := q.first; w != nil; w = w.next {
		w.waker.Wake()
	}
}

// claim gives the first client the turn, unless another client has it. It reports whether w has the turn.
func (q *queue) claim(w *waiter) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.turn == nil && q.first == w {
		q.turn, w.woken = w, true
	}
	return w.woken
}

func (q *queue) turnOf(w *waiter) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return w.woken
}

// stay keeps a client that had the turn and found no room as the first of the queue. It reports whether there may be room
// again already, but only if full: otherwise there was room, but not for this client.
func (q *queue) stay(w *waiter, full bool) (again bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if again, q.again = full && q.again, false; !again {
		w.woken, q.turn = false, nil
	}
	return again
}

// maxLooks bounds how often in a row a client looks again because room came while it looked. Then other clients of its
// worker are served first.
const maxLooks = 8

// later makes the client with the turn look again, after other clients of its worker, if there may be room.
func (q *queue) later(w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if w.woken {
		w.woken, q.turn, q.again = false, nil, false
		q.wake()
	}
}

// leave ends a client's waiting. If the client had the turn, the next client gets it, because this one may have left room,
// or has not looked. If it was the first, the new first client looks too, because the first one may look without the turn.
func (q *queue) leave(w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if w.in.Load() == q {
		q.remove(w)
	}
}

func (q *queue) remove(w *waiter) {
	first := q.first == w
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		q.first = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		q.last = w.prev
	}
	left := q.waiting.Add(-1)
	if q.places != nil {
		q.places.Give()
		if left == 0 {
			q.places.note(q, false)
		}
	}
	if q.turn == w {
		q.turn, q.again, first = nil, false, true
	}
	if first {
		q.wake()
	}
	q.lines.Remove(w.line)
	w.waker, w.next, w.prev, w.line, w.woken = worker.Waker{}, nil, nil, fanout.Place{}, false
	w.in.Store(nil) // at last, as then w belongs to its owner alone
}

// A client that waits for room at a fallback also waits at the upstreams before it, and takes
// the first free place. So none of these upstreams is idle while its clients wait. A client
// has a place in each of these queues, and when it has the turn in one queue it can use the
// room of that upstream.

// A queuedUpstream is a client's place in the queue of an earlier upstream.
type queuedUpstream struct {
	snapshot *UpstreamSnapshot
	place    waiter
	due      int64 // clock from which an endpoint that gets no clients may be tried; 0: the client is not the first
}

// errFailing says that only a failing endpoint has room, and it is not yet time to try it.
var errFailing = errors.New("a failing endpoint is not tried again so soon")

// joinEarlierQueues also queues a waiting client at the earlier upstreams, at its old place if it has waited there, or else
// as of since.
func (s *Search) joinEarlierQueues(since int64) {
	for snap := s.root; snap != nil && snap != s.snapshot; snap = snap.Fallback {
		queued := &queuedUpstream{snapshot: snap}
		s.earlier = append(s.earlier, queued)
		at := s.visited(&snap.upstream.queue)
		if at == 0 {
			at = since
		}
		if snap.upstream.queue.rejoin(&queued.place, s.waker(), s.from(), at) {
			queued.due = 1 // due at once: another client may have the turn, and no use for it
		}
		snap.upstream.queue.next() // there may be room by now
	}
}

// pickEarlier looks for room at the earlier upstreams at which the client has the turn. left is how much longer it waits.
func (s *Search) pickEarlier(left time.Duration, now int64) bool {
	at, kept, round := s.snapshot, s.entry, s.round
	for _, queued := range s.earlier {
		q := &queued.snapshot.upstream.queue
		if queued.due != 0 && queued.due <= now && !q.claim(&queued.place) && !q.isFirst(&queued.place) {
			queued.due = 0 // it will be woken when it is the first
		}
		for looks := 1; q.turnOf(&queued.place); looks++ {
			s.snapshot, s.entry, s.round = queued.snapshot, breakerEntry{}, len(s.tried)
			trial, err := s.pickFree(&queued.due, left, false, now)
			if err == nil {
				s.leaveQueues()
				s.beginTrial(trial, now)
				if s.back = trial; trial {
					s.retries = s.snapshot.Attempts
				}
				return true
			}
			s.suspendEntry(now)
			s.snapshot, s.entry, s.round = at, kept, round
			if !q.stay(&queued.place, errors.Is(err, lb.ErrFull)) {
				break
			}
			if looks == maxLooks {
				q.later(&queued.place)
				break
			}
		}
	}
	return false
}

// untilTrials returns how long, at most left, a client waits until it looks again without a wake-up.
func (s *Search) untilTrials(left time.Duration, now int64) time.Duration {
	if s.stage == waiting {
		switch {
		case s.due != 0:
			left = min(left, max(time.Duration(s.due-now), time.Millisecond))
		case s.snapshot.upstream.queue.isFirst(&s.place): // another client has the turn, and may have no use for it
			left = min(left, trialEvery)
		}
	}
	for _, queued := range s.earlier {
		if queued.due != 0 {
			left = min(left, max(time.Duration(queued.due-now), time.Millisecond))
		}
	}
	return left
}

// pickFree is pick for a client that waits for room. A failing endpoint, even if it gets no other clients, is tried at
// intervals, whatever the number of waiting clients. trial says that this is such a trial, and due is set to the time of
// the next trial. A client that is out of time makes no trial. A client that waits here only for a failing endpoint does
// not wait for room.
func (s *Search) pickFree(due *int64, left time.Duration, here bool, now int64) (trial bool, err error) {
	*due = 0
	if err = s.pick(now); err != nil {
		if left <= 0 || here && !errors.Is(err, lb.ErrFull) {
			return false, err
		}
		if trial, ok := s.pickUnusable(now); ok {
			return trial, nil
		}
		*due = now + int64(s.snapshot.upstream.untilTrial(now))
		return false, err
	}
	if !s.endpoint.Failing() {
		return false, nil
	}
	s.settle(health.Unknown, now)
	if left > 0 { // prefer the endpoint that was found failing longest ago, even if clients are kept from it
		if trial, ok := s.pickUnusable(now); ok {
			return trial, nil
		}
	}
	s.attempt = attempt{failed: s.failed[:0]}
	set := s.snapshot.Set()
	panicking := s.snapshot.upstream.panicking(set)
	if err = s.enterBreaker(panicking); err == nil { // settle has left the breaker
		r := s.request(s.snapshot)
		r.Eligible = lb.Working
		var e *lb.Endpoint
		if e, err = set.Pick(&r); err == nil && s.admit(e, panicking, now) {
			return false, nil
		}
	}
	s.suspendEntry(now)
	if here && err != nil && err != lb.ErrFull {
		return false, lb.ErrUnavailable
	}
	*due = now + int64(s.snapshot.upstream.untilTrial(now))
	return false, errFailing
}

// beginTrial begins an attempt of a client that waits for room. A trial has a bounded time, because others may use the room
// meanwhile; afterwards the next trial begins anyway.
func (s *Search) beginTrial(trial bool, now int64) {
	s.trial = trial
	if end := now + int64(trialPending); trial && (s.end == 0 || s.end > end) {
		s.end = end
	}
}

// pickUnusable acquires an endpoint that gets no clients because of a verdict: a revived one, or else a failing one as a
// trial.
func (s *Search) pickUnusable(now int64) (trial, ok bool) {
	set := s.snapshot.Set()
	if set == nil {
		return false, false
	}
	s.attempt = attempt{failed: s.failed[:0]}
	if s.enterBreaker(true) != nil {
		return false, false
	}
	e := s.revived(set)
	if trial = e == nil; trial {
		e = s.tryFailing(set, now)
	}
	if e == nil || !s.admit(e, true, now) {
		s.suspendEntry(now)
		return false, false
	}
	s.lastResort = true
	return trial, true
}

// revived acquires an endpoint that was failing, and to which a connection was made since the last verdict against it.
func (s *Search) revived(set *lb.Set) *lb.Endpoint {
	tried := len(s.tried)
	defer func() { s.tried = s.tried[:tried] }()
	r := s.request(s.snapshot)
	r.Eligible = lb.LastResort
	for range maxAvoided {
		r.Tried = s.tried[s.round:]
		e, err := set.Pick(&r)
		if err != nil {
			return nil
		}
		if e.Of.(*Endpoint).trials.revived.Load() {
			return e
		}
		e.Return()
		s.tried = append(s.tried, e) // only for this pick
	}
	return nil
}

// claimTrial reports whether a failing endpoint may be tried, and lets other clients wait for the result.
func (e *Endpoint) claimTrial(now int64) bool {
	due := e.trials.due.Load()
	if due > now || !e.trials.due.CompareAndSwap(due, now+int64(trialPending)) {
		return false
	}
	e.trials.began.Store(now)
	return true
}

func (s *Search) leaveEarlier() {
	for _, queued := range s.earlier {
		queued.snapshot.upstream.queue.leave(&queued.place)
	}
	clear(s.earlier)
	s.earlier = s.earlier[:0]
}
