package relay

import (
	"io"
	"slices"
	"time"
)

// Inside for the external tests.

// SetClock makes r's sessions read the time from now and set timers by after.
func (r *Relay) SetClock(now func() time.Duration, after func(time.Duration, func()) interface {
	Reset(time.Duration) bool
	Stop() bool
},
) {
	r.clock = testClock{now, after}
	r.guard.clock = r.clock
}

// SetLinger has sessions of which a side was reset wait no longer than that for a side that takes nothing.
func (r *Relay) SetLinger(d time.Duration) { r.linger = d }

// SetThresholds has one read of that size change a direction's engine.
func (r *Relay) SetThresholds(bytes int) {
	r.cfg.promote, r.cfg.demote = threshold{bytes, 1}, threshold{bytes, 1}
}

type testClock struct {
	nowFunc func() time.Duration
	after   func(time.Duration, func()) interface {
		Reset(time.Duration) bool
		Stop() bool
	}
}

func (c testClock) now() int64 { return int64(c.nowFunc()) }

func (c testClock) afterFunc(d time.Duration, f func()) timer { return c.after(d, f) }

// Raised is how many directions have their low-water mark raised.
func (r *Relay) Raised() int {
	r.guard.mu.Lock()
	defer r.guard.mu.Unlock()
	return len(r.guard.raised)
}

// Guarded reports of both directions, a to b and b to a, whether the guard looks after
// them.
func (s *Session) Guarded() [2]bool {
	g := &s.r.guard
	g.mu.Lock()
	defer g.mu.Unlock()
	return [2]bool{slices.Contains(g.raised, &s.ab), slices.Contains(g.raised, &s.ba)}
}

// LoweredAt is how many bytes direction i, 0 being a to b, had moved when the guard last lowered its
// mark. The mark must have been raised before.
func (s *Session) LoweredAt(i int) int64 {
	s.r.guard.mu.Lock()
	defer s.r.guard.mu.Unlock()
	return [2]*direction{&s.ab, &s.ba}[i].rareState().mark.since
}

// Guarded is that of a session on a loop.
func (s *Driven) Guarded() (both [2]bool) {
	for _, m := range s.drv.marked {
		for i, d := range []*direction{&s.ab, &s.ba} {
			both[i] = both[i] || m.dir == d && m.inForce()
		}
	}
	return both
}

// HalfOpen reports whether the session has noted that a direction ended.
func (s *Session) HalfOpen() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.halfOpen.Load()
}

// HalfOpen reports whether the session has noted that a direction ended.
func (s *Driven) HalfOpen() bool { return s.is(half) }

// Recalled reports whether the session is to be called in the next turn.
func (s *Driven) Recalled() bool { return s.is(recalled) }

// Raised is how many directions the guard looks at.
func (d *Driver) Raised() int { return len(d.marked) }

// Buffers is how many buffers of what its destinations did not take a session
// holds.
func (s *Driven) Buffers() (n int64) {
	for _, d := range []*direction{&s.ab, &s.ba} {
		if d.held != nil && d.held.buf != nil {
			n++
		}
	}
	return n
}

// Prove makes both directions count as proven bulk: they splice through pipes of a size
// for which a mark pays, and raise it whenever their sources run dry. It is called
// before Run.
func (s *Session) Prove() { s.ab.prove(); s.ba.prove() }

// Prove is that of a session which has started.
func (s *Driven) Prove() { s.ab.prove(); s.ba.prove() }

func (d *direction) prove() {
	d.mode, d.pipeSize = splicing, pipeOf(markPipe)
	d.set(pinned, true)
	d.rareState().mark = new(lowWaterMark)
}

// Throttle is what a session that keeps to a rate has for that.
func (s *Driven) Throttle() any { return s.throttle() }

// Owe takes n bytes of a bucket at a time of a test's clock.
func (b *Bucket) Owe(n int64, now time.Duration) { b.reserve(b.inForce(), n, int64(now)) }

// LeastPiece is how many bytes a direction may read before it pays for them.
const LeastPiece = leastPiece

// CloseDefault closes the default relay, which must not be used any more.
func CloseDefault() error {
	r, err := Default()
	if err != nil {
		return err
	}
	return r.Close()
}

// LayerPending is how many bytes of the first side's layer its socket has not taken.
func (s *Driven) LayerPending() int {
	if x, _ := s.layers(); x != nil {
		return len(x.out) - x.sent
	}
	return 0
}

// LayerMemory is how much memory the first side's layer has for that, and whether the driver has its own.
func (s *Driven) LayerMemory() (size int, spare bool) {
	if x, _ := s.layers(); x != nil {
		size = cap(x.out)
	}
	return size, s.drv.scratch != nil
}

// Left is the time until the next timeout of the session.
func (s *Driven) Left() time.Duration {
	left, _ := s.nextTimeout()
	return left
}

// HasRest reports whether a session has more than a Parked has room for.
func (p *Parked) HasRest() bool { return p.rest != nil }

// Limits returns those of the session.
func (s *Session) Limits() *Limits { return s.limits }

// CopyFileThroughPipe is Copy of a file by the way not taken: a leased pipe.
func (r *Relay) CopyFileThroughPipe(dst io.Writer, src io.Reader) (int64, error) {
	j := r.newCopyJob()
	d := &j.dir
	d.set(oneWay, true)
	leg := new(legState)
	r.connect(d, &j.ends, &j.env, newEnd(src, leg, &unwrapped{}), newEnd(dst, leg, &unwrapped{}), nil)
	d.mode = splicing
	d.set(pinned, true)
	err := j.run(src, dst)
	return d.flow().Bytes(), err
}
