package server

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/internal/router"
	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/proxy/rollback"
)

const mostEndings = 16

// endLook is the shortest interval between two looks at busy sessions. Looks take at most 1/endShare of the time.
const (
	endLook  = 100 * time.Millisecond
	endShare = 10
)

// An endJob ends sessions that an operator has chosen. Each session has its turn at a random moment
// of the time over which the ends are spread. Only counts is under the server's mu; the rest
// belongs to the job's goroutine.
type endJob struct {
	table   *sessionTable
	query   admin.EndQuery
	by      string
	cancel  context.CancelFunc
	loops   map[int][]endTurn // sessions that are left, by loop, in the order of their turns
	done    chan struct{}     // closed at the end
	counted admin.Ended       // under the server's mu
}

type endTurn struct {
	id       worker.ID
	at       int64
	endpoint *router.Endpoint // nil: unknown
}

// unanswering reports whether the session's endpoint is down, ejected or silent. Then the session's
// silence proves nothing: the endpoint may stand still in the middle of an answer.
func (t *endTurn) unanswering() bool {
	if t.endpoint == nil {
		return false
	}
	_, silent := t.endpoint.Answers().Silence()
	state := t.endpoint.State()
	return silent || state.Down || state.Ejected
}

// EndSessions implements [admin.Balancer].
func (s *sessionTable) EndSessions(ctx context.Context, q admin.EndQuery, by string) (admin.Ended, error) {
	of, err := queryOf(&q.SessionQuery)
	if err != nil {
		return admin.Ended{}, err
	}
	if err := s.named(ctx, of); err != nil {
		return admin.Ended{}, err
	}
	of.Brief = true
	q.Grace, q.Quiet = cmp.Or(q.Grace, admin.DefaultGrace), cmp.Or(q.Quiet, admin.DefaultQuiet)
	if q.Now {
		q.Quiet = 0
	}
	if !q.DryRun {
		s.byHand.begin()
	}
	j := &endJob{table: s, query: q, by: by, loops: make(map[int][]endTurn), done: make(chan struct{})}
	now := s.now()
	for one := range s.selected(ctx, &q.SessionQuery, of) {
		if !one.State.HasEndpoint() {
			j.counted.WithoutEndpoint++
			continue
		}
		j.take(one.ID, now, router.EndpointOf(one.Binding))
	}
	if err := ctx.Err(); err != nil {
		j.drop()
		return admin.Ended{}, err
	}
	j.counted.QuietUs = q.Quiet.Microseconds()
	if q.DryRun {
		j.counted.DryRun, j.counted.Done = true, true
		return j.counted, nil
	}
	j.counted.Waiting = j.counted.Touched
	if err := s.beginEnding(j); err != nil {
		j.drop()
		return admin.Ended{}, err
	}
	timer := time.NewTimer(admin.EndWait)
	defer timer.Stop()
	select {
	case <-j.done:
	case <-timer.C:
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return j.counted, nil
}

func (j *endJob) take(id worker.ID, now int64, to *router.Endpoint) {
	turn := endTurn{id, now, to}
	if j.query.Over > 0 {
		turn.at += rand.Int64N(int64(j.query.Over))
	}
	j.loops[id.Loop] = append(j.loops[id.Loop], turn)
	if turn.unanswering() {
		j.counted.Unanswering++
	}
	j.counted.Touched++
}

func (j *endJob) drop() {
	if !j.query.DryRun {
		j.table.byHand.finish()
	}
}

func (s *sessionTable) beginEnding(j *endJob) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ended.Err() != nil:
		return rollback.ErrClosed
	case len(s.endings) >= mostEndings:
		return fmt.Errorf("%w (%d): wait for them, or stop them", admin.ErrEndings, mostEndings)
	}
	for _, turns := range j.loops {
		slices.SortFunc(turns, func(a, b endTurn) int { return cmp.Compare(a.at, b.at) })
	}
	within := j.query.Over
	if !j.query.Now {
		within += j.query.Grace
	}
	j.counted.Until = time.Now().Add(within)
	attrs := []any{"by", j.by, "sessions", j.counted.Touched, "selected", j.query.SessionQuery.String()}
	if !j.query.Now {
		attrs = append(attrs, "quiet", j.query.Quiet)
	}
	s.log.Info("sessions are being ended", append(attrs, "until", j.counted.Until.Format(time.RFC3339))...)
	ctx, cancel := context.WithCancel(s.ended)
	j.cancel = cancel
	s.endings[j] = true
	s.goTracked(func() { j.run(ctx) })
	return nil
}

// StopEnding implements [admin.Balancer].
func (s *sessionTable) StopEnding(by string) (stopped admin.Stopped) {
	s.mu.Lock()
	jobs := make([]*endJob, 0, len(s.endings))
	for j := range s.endings {
		jobs = append(jobs, j)
		j.cancel()
	}
	s.mu.Unlock()
	for _, j := range jobs {
		<-j.done
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range jobs {
		stopped.Requests++
		stopped.Kept += j.counted.Stopped
	}
	if len(jobs) > 0 {
		s.log.Info("requests to end sessions were stopped", "by", by, "requests", stopped.Requests, "kept", stopped.Kept)
	}
	return stopped
}

// run ends the sessions, each in its turn, until none is left or ctx ends.
func (j *endJob) run(ctx context.Context) {
	s := j.table
	defer close(j.done)
	defer s.byHand.finish()
	for ctx.Err() == nil {
		began := s.now()
		for loop := range j.loops {
			j.step(ctx, loop, began)
		}
		next := j.next(began, s.now()-began)
		if next < 0 || !s.pause(ctx, next) {
			break
		}
	}
	j.lookAgain()
	s.mu.Lock()
	defer s.mu.Unlock()
	j.cancel()
	delete(s.endings, j)
	c := &j.counted
	c.Stopped, c.Waiting, c.Done, c.Until = c.Waiting, 0, true, time.Time{}
	attrs := []any{"by", j.by, "sessions", c.Touched}
	for _, of := range []struct {
		what string
		n    int64
	}{{"ended", c.Ended}, {"reset", c.Cut}, {"other", c.Other}, {"ended_by_peers", c.Left}, {"kept", c.Kept}, {"stopped", c.Stopped}} {
		if of.n > 0 {
			attrs = append(attrs, of.what, of.n)
		}
	}
	s.log.Info("the request to end sessions is done", attrs...)
}

// step ends the sessions of a loop that are due. Busy sessions stay until their time is over.
func (j *endJob) step(ctx context.Context, loop int, now int64) {
	turns := j.loops[loop]
	due, _ := slices.BinarySearchFunc(turns, now, func(t endTurn, now int64) int { return cmp.Compare(t.at, now+1) })
	late := 0 // number of due sessions that are out of time
	if !j.query.Now {
		late, _ = slices.BinarySearchFunc(turns[:due], now-int64(j.query.Grace), func(t endTurn, now int64) int { return cmp.Compare(t.at, now+1) })
	}
	sum := new(endSum)
	kept := j.end(ctx, turns[:late], j.query.Quiet, sum)
	if j.query.ThenReset {
		kept = j.end(ctx, kept, 0, sum)
	}
	sum.kept = int64(len(kept))
	busy := j.end(ctx, turns[late:due], j.query.Quiet, sum)
	j.loops[loop] = append(busy, turns[due:]...)
	if len(j.loops[loop]) == 0 {
		delete(j.loops, loop)
	}
	j.add(sum)
}

func (j *endJob) add(sum *endSum) {
	j.table.mu.Lock()
	defer j.table.mu.Unlock()
	c := &j.counted
	c.Ended, c.Cut, c.Other, c.Left, c.Kept = c.Ended+sum.ended, c.Cut+sum.cut, c.Other+sum.other, c.Left+sum.left, c.Kept+sum.kept
	c.Waiting = c.Touched - c.Ended - c.Cut - c.Other - c.Left - c.Kept
}

// lookAgain counts the sessions that are left and the sessions that are gone: a cancelled job ends no further sessions, but
// some may have ended before their turn.
func (j *endJob) lookAgain() {
	for _, turns := range j.loops {
		sum := new(endSum)
		j.end(context.Background(), turns, never, sum) // it does not wait once the loops have ended
		j.add(sum)
	}
}

// never is longer than any session's silence.
const never = math.MaxInt64

type endSum struct{ ended, cut, other, left, kept int64 }

// end tries to end sessions of a loop, and returns the busy sessions in their order. If sessions have to be quiet, a
// session also counts as busy while its endpoint does not answer.
func (j *endJob) end(ctx context.Context, turns []endTurn, quiet time.Duration, sum *endSum) (busy []endTurn) {
	ids, asked := make([]worker.ID, 0, len(turns)), make([]int, 0, len(turns))
	for i := range turns {
		if quiet == 0 || quiet == never || !turns[i].unanswering() {
			ids, asked = append(ids, turns[i].id), append(asked, i)
		}
	}
	over := make([]bool, len(turns))
	n, byHand := 0, &j.table.byHand
	byHand.turn.Lock()
	defer byHand.turn.Unlock()
	_ = j.table.group.End(ctx, ids, quiet, func(id worker.ID, e worker.EndResult) {
		over[asked[n]] = e != worker.Busy
		switch {
		case e == worker.Busy:
		case e == worker.EndedNow && byHand.note(id):
			if quiet == 0 && !j.query.Now {
				sum.cut++
			} else {
				sum.ended++
			}
		case byHand.has(id):
			sum.other++
		default:
			sum.left++
		}
		n++
	}) // sessions about which nothing was heard count as busy
	for i, t := range turns {
		if !over[i] {
			busy = append(busy, t)
		}
	}
	return busy
}

// next returns how long to wait after a step; negative: nothing is left.
func (j *endJob) next(now, spent int64) time.Duration {
	first := int64(-1)
	for _, turns := range j.loops {
		at := turns[0].at
		if at <= now { // the session is busy
			at = now + max(int64(endLook), endShare*spent)
		}
		if first < 0 || at < first {
			first = at
		}
	}
	if first < 0 {
		return -1
	}
	return time.Duration(max(first-now, int64(10*time.Millisecond)))
}

// endedByHand are the sessions that requests have ended, kept while any such request is under way. A request that
// finds a session gone looks here whether another request has ended it.
type endedByHand struct {
	// turn is held while a request asks the loops: the sessions that it has ended are noted before
	// another request is answered.
	turn sync.Mutex

	mu       sync.Mutex
	requests int // requests under way, also if they still select their sessions
	ids      map[worker.ID]struct{}
}

// begin is called before a request selects sessions.
func (e *endedByHand) begin() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.requests++
}

func (e *endedByHand) finish() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.requests--; e.requests == 0 {
		e.ids = nil
	}
}

// note notes that a session was ended, and reports whether this is new.
func (e *endedByHand) note(id worker.ID) (first bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ids == nil {
		e.ids = make(map[worker.ID]struct{})
	}
	before := len(e.ids)
	e.ids[id] = struct{}{}
	return len(e.ids) > before
}

func (e *endedByHand) has(id worker.ID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, is := e.ids[id]
	return is
}
