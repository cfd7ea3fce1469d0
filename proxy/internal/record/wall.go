package record

import (
	"sync/atomic"
	"time"
)

// stepped is the least difference that is a step of the machine's clock. Smaller differences come from reading the
// two clocks one after the other. They are ignored, so that a time stays the same from one reading to the next.
const stepped = time.Millisecond

// A Wall turns a time of the clock of records into the time of day. When the machine's clock is set, all times are as
// if it had always been right. It is safe for concurrent use.
type Wall struct {
	now   func() int64
	today func() time.Time
	begin atomic.Int64 // Unix time at which the clock was 0, in nanoseconds
}

// NewWall returns the Wall of a clock. today is time.Now.
func NewWall(now func() int64, today func() time.Time) *Wall {
	w := &Wall{now: now, today: today}
	w.begin.Store(today().UnixNano() - now())
	return w
}

// Of returns the time of day at a time of the clock, without a monotonic part.
func (w *Wall) Of(at int64) time.Time {
	begin, before := w.begin.Load(), w.now()
	read := w.today().UnixNano() - before
	late := w.now()-before >= int64(stepped) // the thread was off its CPU between the two
	if off := max(read-begin, begin-read); off >= int64(stepped) && !late {
		w.begin.Store(read)
		begin = read
	}
	return time.Unix(0, begin).Add(time.Duration(at))
}
