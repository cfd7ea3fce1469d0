package vecio

import (
	"fmt"
	"time"
)

// A Policy decides when a [Writer] hands its pieces to the kernel, and whether the kernel may hold some back.
// docs/library.md has a table of the policies.
//
// With every policy TCP_NODELAY is set on a TCP socket, and stays set: without a cork, bytes that the kernel
// has leave at once, without waiting for an acknowledgement. A flush that takes several calls is done under
// TCP_CORK, so that TCP sees one write.
type Policy uint8

const (
	// Latency: End flushes.
	Latency Policy = iota

	// Batch: End does not flush; Flush does, for all complete units and the pieces appended since. Pieces that
	// have to leave earlier, because more than Config.High would be pending, leave under TCP_CORK, in full
	// segments.
	Batch

	// Adaptive: End flushes, as with Latency. The beginning of an incomplete unit is handed to the kernel,
	// under TCP_CORK, as soon as it fills a segment, so that long units leave while they are made. The rest is
	// due after Config.Bound, see [Writer.Due].
	Adaptive
)

// DefaultBound is how long Adaptive lets an incomplete unit wait if Config.Bound is 0.
const DefaultBound = 200 * time.Microsecond

// ParsePolicy returns the policy with that name. Its error names the policies.
func ParsePolicy(name string) (Policy, error) {
	for _, p := range []Policy{Latency, Batch, Adaptive} {
		if p.String() == name {
			return p, nil
		}
	}
	return 0, fmt.Errorf("penstock: vecio: policy %q: write latency, batch or adaptive", name)
}

// String returns "latency", "batch" or "adaptive".
func (p Policy) String() string {
	switch p {
	case Latency:
		return "latency"
	case Batch:
		return "batch"
	case Adaptive:
		return "adaptive"
	}
	return fmt.Sprintf("Policy(%d)", uint8(p))
}

// check returns the error of the Config fields that belong to policies.
func (p Policy) check(bound time.Duration) error {
	switch {
	case p > Adaptive:
		return fmt.Errorf("penstock: vecio: Policy is %v: use Latency, Batch or Adaptive", p)
	case bound < 0:
		return fmt.Errorf("penstock: vecio: Bound is %v: use 0 or more", bound)
	}
	return nil
}

// A pace decides when a writer has to send.
//
// Invariant, with a bound: waits is true while there are appended bytes that no flush has pushed, here or under
// the kernel's cork; since is when the first of them was appended.
type pace struct {
	waits bool
	asked bool  // a Flush has met ErrBlocked or a deadline, and will be called again
	stuck bool  // an early hand-over has met ErrBlocked: try no other before a Flush
	since int64 // on the clock Config.Now

	segment int   // bytes that fill a segment; 0: unknown
	read    int64 // when segment was read, on the clock Config.Now
}

// segmentAge is the age in nanoseconds at which the segment size is read again.
const segmentAge = int64(time.Second)

// epoch is the origin of the system's clock.
var epoch = time.Now()

func monotonic() int64 { return int64(time.Since(epoch)) }

// End completes a unit, such as a message. [Policy] decides whether End flushes it, with the results of Flush.
// After ErrBlocked, End sends nothing until Flush is called: call Flush when the descriptor is writable.
func (w *Writer) End() error {
	w.stats.Units++
	switch {
	case w.config.Policy == Batch:
		return w.err
	case w.pace.asked && w.path == PathSocket:
		return ErrBlocked
	}
	return w.Flush()
}

// Due returns in what time Flush should be called, and whether at all: with Adaptive for bytes of an incomplete
// unit, with Batch and a Config.Bound for unflushed bytes. The time is 0 if Flush should be called now. A loop
// arms a timer with it after appending; other callers ask before they wait for something else. Nothing is due
// while a writer waits for its descriptor to be writable.
func (w *Writer) Due() (time.Duration, bool) {
	if !w.pace.waits || w.pace.asked {
		return 0, false
	}
	return time.Duration(max(w.pace.since+int64(w.config.Bound)-w.config.Now(), 0)), true
}

// paced checks whether the piece that was just appended has to be sent. The piece was taken, so the next call
// returns a failure.
func (w *Writer) paced() {
	if w.config.Bound == 0 || w.q == nil || w.pace.asked {
		return
	}
	p := &w.pace
	if w.config.Policy == Batch && p.waits {
		return
	}
	now := w.config.Now()
	if !p.waits {
		p.waits, p.since = true, now
	}
	if w.config.Policy == Batch {
		return
	}
	if now-p.since >= int64(w.config.Bound) {
		_ = w.Flush()
	} else if n := w.segmentSize(now); n > 0 && w.Pending() >= n && !p.stuck {
		p.stuck = w.early(0) == ErrBlocked
	}
}

// segmentSize returns the number of bytes that fill a segment.
func (w *Writer) segmentSize(now int64) int {
	if p := &w.pace; p.read == 0 || now-p.read > segmentAge {
		p.segment, p.read = w.cork.segment(), max(now, 1)
	}
	return w.pace.segment
}

// early writes the beginning of an incomplete unit until at most low bytes are pending. Bytes that do not fill
// a segment wait in the kernel for the rest of the unit.
func (w *Writer) early(low int64) error {
	w.stats.Early++
	w.cork.hold()
	return w.drain(low)
}

// settle ends a flush. After a complete flush the kernel keeps nothing back.
func (w *Writer) settle(err error) error {
	switch {
	case err == nil:
		w.cork.draw()
		w.pace.waits, w.pace.asked, w.pace.stuck = false, false, false
	case err == ErrBlocked:
		w.pace.asked = true
	}
	return err
}

// uncork is called for a writer that has failed, was interrupted, or is abandoned. It makes the kernel send the
// bytes that it has, because no other flush may come.
func (w *Writer) uncork(again bool) {
	w.cork.push()
	w.pace = pace{waits: w.pace.waits && again, asked: again, since: w.pace.since}
}
