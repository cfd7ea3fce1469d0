package server

import (
	"math/rand/v2"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/lane"
	"github.com/penstock/penstock/proxy/config"
	"github.com/penstock/penstock/proxy/internal/record"
	"github.com/penstock/penstock/proxy/internal/source"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// adoptedLook is how often adopted sessions are looked at.
const adoptedLook = 500 * time.Millisecond

// adopted are the sessions in the lane that a process before this one had. They are of no loop.
type adopted struct {
	mu    sync.Mutex // of all fields but lines, and of those of the sessions
	list  []*adoptedSession
	byID  map[worker.ID]*adoptedSession // the same
	idle  time.Duration                 // after which those of no known listener end; 0: never
	moved [2]int64                      // bytes since the adoption of those that have ended
	come  chan struct{}                 // has a token once some have been adopted, for watchAdopted

	cutAtEnd int64 // how many were reset, for the process ends

	lines []adoptedLine // that are to be written; of the goroutine that watches the sessions, and then of the one that closes everything
}

// An adoptedSession is one of them.
type adoptedSession struct {
	adoptedOf
	session          *lane.Session // borrowed
	client, endpoint string
	own              netip.AddrPort // this machine's, of the connection to the client
	at               netip.AddrPort // the endpoint
	local            string         // this machine's, of the connection to the endpoint
	source           source.Source
	active           time.Time // when bytes have moved, as far as looks have found out
	first, last      [2]uint64 // bytes at the adoption, and at the last look
	cause            error     // it is being reset for that; the first counts
	id               worker.ID // in lists and requests
	logID            record.ID // in the session log; that of the process before is not known
	end              atomic.Pointer[adoptedEnd]
}

// adopt takes the sessions of a lane that was opened.
func (a *adopted) adopt(l *lane.Lane, names *adoptedNames, now func() int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	ids := record.NewIDs()
	if a.byID == nil {
		a.byID = make(map[worker.ID]*adoptedSession)
	}
	for n, s := range l.Sessions() {
		x, y, known := s.Addresses()
		tag, there := s.Tag()
		one := &adoptedSession{session: s, logID: ids.Of(uint64(n))}
		if !known || !there || !s.AtEnd(func(r lane.Result) { one.end.Store(one.ends(&r, now())) }) {
			continue // it has ended, or is this process's
		}
		one.first = s.Bytes()
		one.last, one.active = one.first, time.Now().Add(-s.Idle())
		one.client, one.own, one.endpoint, one.at, one.local, one.source = x[0].String(), x[1], y[0].String(), y[0], y[1].String(), source.TCP(x[0])
		one.id = worker.AdoptedID(s.Identity())
		one.release = append(one.release, names.server.group.Adopt())
		one.tag, one.share = worker.LaneTagOf(tag), rand.Float64()
		names.resolve(one)
		a.list = append(a.list, one)
		a.byID[one.id] = one
	}
	a.awake()
}

// awake has the sessions be watched, if there are any.
func (a *adopted) awake() {
	if len(a.list) == 0 {
		return
	}
	select {
	case a.come <- struct{}{}:
	default:
	}
}

// look notes what has moved, and returns those that have ended, and how many are left. It has those end whose timeouts have passed.
func (a *adopted) look() (ended []*adoptedSession, left int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now, kept := time.Now(), a.list[:0]
	for _, s := range a.list {
		if end := s.end.Load(); end != nil {
			s.last = end.Bytes
			ended = append(ended, s)
			delete(a.byID, s.id)
			for i := range a.moved {
				a.moved[i] += int64(s.last[i] - s.first[i])
			}
			continue
		}
		s.moves(now)
		if why := s.overdue(now, a.idle); why != nil {
			s.reset(why)
		}
		kept = append(kept, s)
	}
	clear(a.list[len(kept):])
	a.list = kept
	return ended, len(kept)
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

// ending returns how many of the sessions end with this process, or before, and how many go on without it: with leave those in the lane.
func (a *adopted) ending(leave bool) (ends, goOn int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.list {
		if leave && s.cause == nil && s.end.Load() == nil && s.session.Left() {
			goOn++
		} else {
			ends++
		}
	}
	return ends, goOn
}

// cutForTheEnd has sessions reset that are chosen, for the process ends. It counts them.
func (a *adopted) cutForTheEnd(chosen func() bool) {
	n := a.cut(func(s *adoptedSession) bool { return s.end.Load() == nil && chosen() }, errCut)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.cutAtEnd += n
}

// awaitAdopted waits until no adopted session is left that does not go on without this process. At the end of the drain it cuts them, in the steps from the
// n-th on; next is when that is, left as for [Server.waitedFor].
func (s *Server) awaitAdopted(spread worker.Spread, n int, next <-chan struct{}, left int64) {
	ending := func() int64 {
		ends, _ := s.adopted.ending(s.leavesLane())
		return ends
	}
	waits := ending()
	if waits == 0 {
		return
	}
	s.log.Info("drain waits for adopted sessions", "sessions", waits)
	look := time.NewTicker(adoptedLook / 5)
	defer look.Stop()
	for n < spread.Steps && ending() > 0 {
		select {
		case <-s.cut.Done():
			return
		case <-look.C:
		case <-next:
			s.cutSomeAdopted(spread, n, left)
			n++
			next = s.wait(spread.Every)
		}
	}
}

// adoptedCut resets adopted sessions that are left, but for those that go on, and returns how many the end of the process has reset.
func (s *Server) adoptedCut() int64 {
	var left int64
	if s.leavesLane() {
		left, _ = s.adopted.ending(true) // they are reset as the lane is closed
	} else {
		s.adopted.cutForTheEnd(func() bool { return true })
	}
	s.adopted.mu.Lock()
	left += s.adopted.cutAtEnd
	s.adopted.mu.Unlock()
	if left > 0 {
		s.log.Warn("adopted sessions are reset, for the process ends", "sessions", left)
	}
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
