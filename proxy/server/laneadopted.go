package server

import (
	"context"
	"errors"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/penstock/penstock/lane"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/internal/record"
	"github.com/penstock/penstock/proxy/internal/source"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// adoptedLook is how often adopted sessions are looked at.
const adoptedLook = 500 * time.Millisecond

// errAdoptedIdle is the cause of the end of an adopted session that was idle for too long.
var errAdoptedIdle = errors.New("it was idle for too long")

// adopted are the sessions in the lane that a process before this one had: they are of no loop, listener and
// endpoint, and their addresses are all that is known of them.
type adopted struct {
	mu    sync.Mutex
	list  []*adoptedSession
	idle  time.Duration // after which they end; 0: never
	moved [2]int64      // bytes since the adoption of those that have ended
}

// An adoptedSession is one of them.
type adoptedSession struct {
	session          *lane.Session // borrowed
	client, endpoint string
	local            string // this machine's, of the connection to the endpoint
	source           source.Source
	began            time.Time // of the adoption
	active           time.Time // when bytes have moved, as far as looks have found out
	first, last      [2]uint64 // bytes at the adoption, and at the last look
	cause            error     // it is being reset for that; the first counts
}

// adopt takes the sessions of a lane that was opened.
func (a *adopted) adopt(l *lane.Lane) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range l.Sessions() {
		x, y, ok := s.Addresses()
		if !ok || !s.Adopted() {
			continue
		}
		n, now := s.Bytes(), time.Now()
		a.list = append(a.list, &adoptedSession{
			session: s, client: x[0].String(), endpoint: y[0].String(), local: y[1].String(), source: source.TCP(x[0]),
			began: now, active: now.Add(-s.Idle()), first: n, last: n,
		})
	}
}

// setIdle sets the timeout: the longest of the listeners that have sessions leave user space, or of all if none has.
func (a *adopted) setIdle(c *config.Config) {
	var longest time.Duration
	bounded := true
	for _, l := range c.Listeners {
		if l.Lane != config.LaneOff || !c.WantsLane() {
			longest = max(longest, l.Timeouts.Idle)
			bounded = bounded && l.Timeouts.Idle > 0
		}
	}
	if !bounded {
		longest = 0
	}
	a.mu.Lock()
	a.idle = longest
	a.mu.Unlock()
}

// look notes what has moved, and returns those that have ended. It has those end that are idle for too long.
func (a *adopted) look() (ended []*adoptedSession) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now, kept := time.Now(), a.list[:0]
	for _, s := range a.list {
		if n := s.session.Bytes(); n != s.last {
			s.last, s.active = n, now.Add(-s.session.Idle())
		}
		switch {
		case !s.session.Adopted():
			ended = append(ended, s)
			for i := range a.moved {
				a.moved[i] += int64(s.last[i] - s.first[i])
			}
			continue
		case a.idle > 0 && now.Sub(s.active) > a.idle:
			s.reset(errAdoptedIdle)
		}
		kept = append(kept, s)
	}
	clear(a.list[len(kept):])
	a.list = kept
	return ended
}

// reset resets both sides, and reports whether that was not under way. The lock of the list is held.
func (s *adoptedSession) reset(cause error) bool {
	if s.cause != nil {
		return false
	}
	s.cause = cause
	s.session.Reset()
	return true
}

// cut resets those that match, and returns how many.
func (a *adopted) cut(match func(*adoptedSession) bool, cause error) (n int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.list {
		if match(s) && s.reset(cause) {
			n++
		}
	}
	return n
}

// count returns how many there are, and their bytes since the adoption, of those that have ended as well.
func (a *adopted) count() (n int64, moved [2]int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	moved = a.moved
	for _, s := range a.list {
		now := s.session.Bytes()
		for i := range moved {
			moved[i] += int64(now[i] - s.first[i])
		}
	}
	return int64(len(a.list)), moved
}

// matches decides by addresses and bytes alone: a query for anything else selects none.
func (s *adoptedSession) matches(q *worker.Query, verdict string) bool {
	switch {
	case q.ID != worker.ID{} || q.Listener != "" || q.Upstream != "" || q.State != "" && q.State != worker.Joined:
		return false
	case verdict != "" && verdict != admin.AnyVerdict, q.Older > 0 && time.Since(s.began) < q.Older, q.Idle > 0 && time.Since(s.active) < q.Idle:
		return false
	case q.Endpoint != "" && q.Endpoint != s.endpoint, q.Source != source.Rule{} && !q.Source.Contains(s.source):
		return false
	}
	n := s.session.Bytes()
	return int64(n[0]+n[1]) >= q.Bytes
}

// selected returns those of a query, as they are listed.
func (a *adopted) selected(q *worker.Query, verdict string) (list []admin.Session) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, s := range a.list {
		if !s.matches(q, verdict) {
			continue
		}
		n, idle := s.session.Bytes(), time.Since(s.active).Microseconds()
		one := admin.Session{
			ID: "adopted-" + strconv.Itoa(i), Client: s.client, Endpoint: s.endpoint, EndpointLocal: s.local, State: string(worker.Joined), Loop: -1,
			AgeUs: time.Since(s.began).Microseconds(), IdleUs: &idle, Engine: admin.EngineLane, Adopted: true,
			Bytes: bytesOf(worker.Bytes{ClientToEndpoint: worker.Moved{Lane: int64(n[0])}, EndpointToClient: worker.Moved{Lane: int64(n[1])}}, worker.Bytes{}),
		}
		if verdict != "" {
			one.Verdict = "unknown"
		}
		list = append(list, one)
	}
	return list
}

// endAdopted ends the adopted sessions of a query: one that is not quiet, and was to be, goes on.
func (s *Server) endAdopted(q *admin.EndQuery, of *worker.Query, counted *admin.Ended) {
	var touched, kept int64
	ended := s.adopted.cut(func(one *adoptedSession) bool {
		if !one.matches(of, q.Verdict) {
			return false
		}
		touched++
		quiet := time.Since(one.active) >= q.Quiet
		if !quiet && !q.DryRun {
			kept++
		}
		return quiet && !q.DryRun
	}, record.ErrOperator)
	counted.Touched, counted.Ended, counted.Kept = counted.Touched+touched, counted.Ended+ended, counted.Kept+kept
	if !q.DryRun {
		counted.Other += touched - ended - kept // were being reset
	}
}

// watchAdopted looks after adopted sessions until stop, and logs their ends.
func (s *Server) watchAdopted(stop <-chan struct{}) {
	tick := time.NewTicker(adoptedLook)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		for _, one := range s.adopted.look() {
			s.logAdopted(one)
		}
	}
}

func (s *Server) logAdopted(one *adoptedSession) {
	by := "an endpoint, by an end of file or a reset"
	if one.cause != nil {
		by = one.cause.Error()
	}
	s.log.Info("an adopted session has ended", "client", one.client, "endpoint", one.endpoint, "to_endpoint", one.last[0], "to_client", one.last[1], "since_adoption", time.Since(one.began).Round(time.Millisecond).String(), "cause", by)
}

// awaitAdopted waits until no adopted session is left, or until the end of the drain, unless they go on without this process.
func (s *Server) awaitAdopted(ctx context.Context) {
	left, _ := s.adopted.count()
	if left == 0 || s.leavesLane() {
		return
	}
	s.mu.Lock()
	until := s.drainEnds // zero: the drain may take any time
	s.mu.Unlock()
	s.log.Info("drain waits for adopted sessions", "sessions", left)
	if !until.IsZero() {
		within, cancel := context.WithDeadline(ctx, until)
		defer cancel()
		ctx = within
	}
	for ; left > 0 && ctx.Err() == nil; left, _ = s.adopted.count() {
		s.pause(ctx, adoptedLook/5)
	}
}

// adoptedCut returns how many adopted sessions the end of the process resets.
func (s *Server) adoptedCut() int64 {
	left, _ := s.adopted.count()
	if left == 0 || s.leavesLane() {
		return 0
	}
	s.log.Warn("adopted sessions are reset, for the process ends", "sessions", left)
	return left
}

// warnOfPins warns of sessions that a process before this one has left pinned, where no listener has the lane that could
// adopt them.
func (s *Server) warnOfPins(c *config.Config) {
	dir := string(c.Lane.Pins)
	if c.WantsLane() || dir == "" {
		return
	}
	if list, err := os.ReadDir(dir); err == nil && len(list) > 0 {
		s.log.Warn("sessions of a process before this one may go on in the kernel, and nothing looks after them: no listener has lane",
			"pins", dir, "instead", "start once with lane: auto at a listener, and run penstock lane flush", "programs_and_maps", len(list))
	}
}
