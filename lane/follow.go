package lane

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/lane/internal/program"
	"github.com/penstock/penstock/lane/internal/state"
)

// follow handles the changes that the programs report, until the lane is closed.
func (l *Lane) follow() {
	for {
		record, err := l.events.Read()
		if err != nil {
			return // closed
		}
		if e, ok := program.ParseEvent(record.RawSample); ok {
			l.changed(e)
		}
	}
}

func (l *Lane) changed(e program.Event) {
	s := l.sessionOf(e)
	if s == nil {
		return
	}
	switch e.State {
	case state.Lane:
		s.noteLeft()
	case state.Done:
		s.noteLeft()
		s.settle()
	}
}

// sessionOf returns the session of an event, or nil if the session has given its place back.
func (l *Lane) sessionOf(e program.Event) *Session {
	l.mu.Lock()
	defer l.mu.Unlock()
	if int(e.Slot) >= len(l.sessions) {
		return nil
	}
	s := l.sessions[e.Slot]
	if s == nil || s.record().Generation != e.Generation {
		return nil
	}
	return s
}

// sweepPeriod is how often the lane looks at lingering sessions, and at sessions with events that were lost
// because the ring was full.
const sweepPeriod = 250 * time.Millisecond

// sweep gives back the slots of ended sessions that have lingered long enough, and ends sessions by their
// timeouts.
func (l *Lane) sweep() {
	t := time.NewTicker(sweepPeriod)
	defer t.Stop()
	stalls, quiet := stalls{of: make(map[stalled]stall)}, silences{of: make(map[*Session]*silence)}
	for {
		select {
		case <-t.C:
		case <-l.stop:
			return
		}
		l.sendAgain() // before a place is given back
		lingering := 0
		for _, s := range l.Sessions() {
			if s.look(&stalls, &quiet) {
				lingering++
			}
		}
		stalls.next()
		quiet.next()
		if most := min(mostLingering, max(l.cfg.Sessions/4, 1)); lingering > most {
			l.forgetOldest(lingering - most)
		}
	}
}

// mostLingering bounds the lingering sessions, which have a descriptor and a slot each. They take at most a
// quarter of the slots. If there are more, the oldest give their slots back. The kernel bounds its sockets in
// TIME_WAIT too (tcp_max_tw_buckets).
const mostLingering = 256

// forgetOldest gives back the slots of the n sessions that have lingered for longest.
func (l *Lane) forgetOldest(n int) {
	type ended struct {
		session *Session
		since   int64
	}
	var all []ended
	for _, s := range l.Sessions() {
		s.mu.Lock()
		if s.phase == over && s.stays() == None {
			all = append(all, ended{s, s.since()})
		}
		s.mu.Unlock()
	}
	slices.SortFunc(all, func(a, b ended) int { return cmp.Compare(a.since, b.since) })
	for _, e := range all[:min(n, len(all))] {
		if at := e.session.record().State(); at == state.Done || at == state.Reset {
			l.release(e.session, at)
		}
	}
}

// mostLinger is how many times Config.Linger an ended session can last because of late packets.
const mostLinger = 4

// look acts on what a session's record says, and reports whether the session lingers.
func (s *Session) look(stalls *stalls, quiet *silences) (lingers bool) {
	linger := int64(s.lane().cfg.Linger)
	s.expire(stalls, quiet)
	s.mu.Lock()
	ended, last, stays := s.phase == over, s.since(), s.stays()
	s.mu.Unlock()
	if stays != None {
		return false
	}
	r := s.record()
	at := r.State()
	switch at {
	case state.Lane, state.Done:
		s.noteLeft()
		s.settle()
		s.reportHalf()
		s.reportBig(r)
		last = min(max(last, int64(r.LastPacket())), last+(mostLinger-1)*linger)
	case state.Reset:
	default:
		return false
	}
	if lingers = ended && now()-last <= linger; ended && !lingers {
		s.lane().release(s, at)
	}
	return lingers
}

// reportHalf reports the first end of file of a session, once, if the owner is an Observer.
func (s *Session) reportHalf() {
	o, ok := s.owner().(Observer)
	if !ok {
		return
	}
	if from := s.halfEnded(); from >= 0 {
		o.HalfClosed(s, from)
	}
}

// bigGap is how long a session with packets above 64 KiB (big TCP) waits for a gap. Until the session has come
// back, these packets are lost.
const bigGap = 50 * time.Millisecond

// reportBig brings a session back if it gets packets that are too big for the lane, or asks its owner to.
func (s *Session) reportBig(r *program.Session) {
	if r.State() != state.Lane || !r.Big() {
		return
	}
	if o := s.owner(); o != nil {
		if o, ok := o.(Returner); ok {
			o.Return(s)
		}
		return
	}
	s.mu.Lock()
	under := s.is(kept)
	s.set(kept, true)
	s.mu.Unlock()
	if !under {
		s.lane().running.Go(func() { _ = s.ComeBack(bigGap) }) // a session that cannot come back is reset, with the reason
	}
}

// now is the time in ns, by the clock with which the programs stamp packets. It reads the runtime's clock,
// because that needs no system call for each session of a sweep.
func now() int64 { return int64(time.Since(clock.began) + clock.at) }

// A moment is one time by two clocks: by the runtime's clock, which is CLOCK_MONOTONIC, and by the programs'
// clock.
type moment struct {
	began time.Time
	at    time.Duration
}

var clock = oneMoment()

// oneMoment reads both clocks several times, and returns the two times that were read closest together. It
// cannot fail: CLOCK_MONOTONIC is always there (clock_gettime(2)).
func oneMoment() (m moment) {
	least := time.Duration(math.MaxInt64)
	for range 8 {
		before := time.Now()
		at, _ := sys.Monotonic()
		after := time.Now()
		if took := after.Sub(before); took < least { // the programs' clock lags by this much at most
			least, m.began, m.at = took, after, at
		}
	}
	return m
}
