package relay

import (
	"io"
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

// HalfOpen reports whether the session has noted that a direction ended.
func (s *Session) HalfOpen() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.halfOpen.Load()
}

// CopyFileThroughPipe is Copy of a file by the way not taken: a leased pipe.
func (r *Relay) CopyFileThroughPipe(dst io.Writer, src io.Reader) (int64, error) {
	j := r.newCopyJob()
	d := &j.dir
	d.remain, d.oneWay = -1, true
	leg := new(legState)
	r.connect(d, end{src, newDescriptor(src, leg), leg}, end{dst, newDescriptor(dst, leg), leg})
	d.mode, d.pinned = splicing, true
	err := j.run(src, dst)
	return d.flow().Bytes(), err
}
