package relay

import (
	"context"
	"math"
	"os"
)

// How a session comes to its ends. Wrappers are asked for them by the goroutines that drive the directions, each for
// the ends of its own, so that one that waits keeps neither the other direction nor the caller of Start.

// bind sets up d to move from one leg to the other; if wrappers have to be asked first, only so that it can be ended.
func (s *Session) bind(d *direction, ends *pair, from, to *leg) {
	if !s.wrapped {
		s.r.connect(d, ends, &s.env, from.src, to.dst, nil)
		return
	}
	ends.env = &s.env
	ends.source, ends.sink = &opaqueSource{r: from.conn, leg: from.state}, &opaqueSink{w: to.conn, leg: to.state}
	d.link = ends
	d.set(waits, true)
}

// open asks the wrappers of a direction's ends, which may wait, and binds it to the ends beneath them.
//
//go:noinline
func (s *Session) open(dr *goroutineDriver) {
	d, ends, from, to := dr.dir, &s.ends[0], &s.a, &s.b
	if d == &s.ba {
		ends, from, to = &s.ends[1], to, from
	}
	written := unwrapWriter(to.conn)
	s.opened(to, &to.dst, newEnd(written.w, to.state, &written))
	read, _ := unwrapReader(s.opening, from.conn, math.MaxInt) // of that, nothing is too much
	if read.err != nil && s.opening.Err() != nil {
		read.err = os.ErrDeadlineExceeded // as a Read that was cut
	}
	s.opened(from, &from.src, newEnd(read.r, from.state, &read))
	switch {
	case servedByLoop(read.r), servedByLoop(written.w):
		read.err = errLoopConn
	case isMissing(read.r):
		read.err = errNilSrc
	case isMissing(written.w):
		read.err = errNilDst
	}
	ends.meters = newMeters(read.meters, written.meters)
	d.setAhead(read.ahead)
	d.set(waits, false)
	s.r.connect(d, ends, &s.env, from.src, to.dst, read.err)
	if d.paceEnds(); d.pace != unpaced {
		d.pacer().owe(int64(len(read.ahead)))
	}
	dr.take(d)
}

// opened makes e an end of a leg. A cut that came before knew nothing of it.
func (s *Session) opened(l *leg, at *end, e end) {
	s.cutting.Lock()
	defer s.cutting.Unlock()
	*at = e
	if servedByLoop(e.rw) {
		l.closed, l.onLoop = true, true
	}
	if s.opening.Err() != nil {
		s.interrupt(l)
	}
}

// beginOpening makes the context of the session's wrappers. A cut may have come before.
func (s *Session) beginOpening(ctx context.Context) {
	s.cutting.Lock()
	defer s.cutting.Unlock()
	s.opening, s.unwait = context.WithCancelCause(context.WithoutCancel(ctx)) // which cuts the session
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reason != ReasonNone {
		s.unwait(s.cause)
	}
}
