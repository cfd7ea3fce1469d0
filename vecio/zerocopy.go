package vecio

import (
	"errors"
	"fmt"
)

// ErrHeld is wrapped by the errors of Close and Reset while the kernel needs pieces that were
// sent with MSG_ZEROCOPY: [Writer.Reap] gives them back, and [Writer.Abort] makes an end.
var ErrHeld = errors.New("pieces are still with the kernel: call Reap until none is held, or Abort")

// ZeroCopyState says whether a [Writer] sends with MSG_ZEROCOPY, and why not.
type ZeroCopyState uint8

const (
	ZeroCopyOff     ZeroCopyState = iota // it was not asked for
	ZeroCopyOn                           // large owned pieces are sent so
	ZeroCopyPath                         // the writer is not one of NewSocket's, see Config.ZeroCopy
	ZeroCopyRefused                      // the descriptor has no SO_ZEROCOPY
	ZeroCopyCopied                       // the kernel has reported that it copies anyway: off for good
	ZeroCopyLost                         // a notice was of calls that are not ours: off for good
)

var zeroCopyStates = [...]string{"off", "on", "no descriptor of its own", "refused", "copied anyway", "lost count"}

// String returns a word or a few.
func (s ZeroCopyState) String() string {
	if int(s) < len(zeroCopyStates) {
		return zeroCopyStates[s]
	}
	return fmt.Sprintf("ZeroCopyState(%d)", uint8(s))
}

// ZeroCopyStats counts the outcomes of MSG_ZEROCOPY. A call is one of sendmsg with that flag
// that took something.
type ZeroCopyStats struct {
	State ZeroCopyState

	Calls int64 // made
	Bytes int64 // that they took
	Done  int64 // calls of which the kernel said that it used the pages themselves
	// Copied: calls of which it said that it copied. It joins notices of calls that
	// follow each other, and keeps the kind of the first.
	Copied   int64
	Notices  int64 // messages on the error queue, for Done and Copied together
	NoBuffer int64 // ENOBUFS (net.core.optmem_max, RLIMIT_MEMLOCK): the piece was copied instead
	Foreign  int64 // messages on the error queue that were about something else

	Held int64 // pieces that are with the kernel now
}

// A zeroCopy is a writer's account of its calls with MSG_ZEROCOPY.
//
// Invariant: a piece of which at least a byte was sent so is not given back before the last
// call that sent some of it is finished, even if the writer fails or is closed.
type zeroCopy struct {
	stats ZeroCopyStats
	sends sends
	// zones are the pieces to be sent so that are not written, or written in part,
	// in order.
	zones fifo[zone]
	held  fifo[held]
	dry   bool // after ENOBUFS, see exhausted
	// socket is SO_COOKIE of the socket with the counted calls; 0: unknown.
	socket uint64
}

// A zone is a piece by its positions in the stream.
type zone struct {
	start, end int64
	sent       bool   // at least a byte of it, with MSG_ZEROCOPY
	call       uint32 // the last of these
}

// A held piece waits for a call to be finished, and all before it.
type held struct {
	proof // with the build tag invariants
	piece []byte
	r     Releaser
	call  uint32
}

// zone makes the last piece, which has n bytes, one to be sent by MSG_ZEROCOPY.
func (w *Writer) zone(n int) {
	if z := w.zero; z != nil && z.stats.State == ZeroCopyOn && n >= w.config.ZeroCopy && n >= w.config.CopyBelow {
		z.zones.push(zone{start: w.appended - int64(n), end: w.appended})
	}
}

// cut returns how many of the spans, which begin at that position, belong into one call,
// and whether that is one with MSG_ZEROCOPY.
func (z *zeroCopy) cut(spans [][]byte, at int64) (n int, zero bool) {
	zones := z.zones.all()
	for len(zones) > 0 && zones[0].end <= at {
		zones = zones[1:]
	}
	if len(zones) == 0 || z.stats.State != ZeroCopyOn {
		return len(spans), false
	}
	limit := zones[0].start
	if zero = limit <= at; zero {
		for limit = zones[0].end; len(zones) > 1 && zones[1].start == limit; zones = zones[1:] {
			limit = zones[1].end
		}
	}
	for ; n < len(spans) && at < limit; n++ {
		at += int64(len(spans[n]))
	}
	return n, zero && !z.dry
}

// exhausted is called after ENOBUFS: the same is sent again, by copying, and so are the next
// pieces until there was a notice; if none can come, until something was sent.
func (z *zeroCopy) exhausted() {
	z.stats.NoBuffer++
	z.dry = true
}

// took counts a call, with MSG_ZEROCOPY or without, that took n bytes from that
// position on.
func (z *zeroCopy) took(at int64, n int, zero bool) {
	if !zero {
		z.dry = z.dry && z.sends.outstanding() > 0
		return
	}
	z.stats.Calls++
	z.stats.Bytes += int64(n)
	call := z.sends.add()
	zones := z.zones.all()
	for i := range zones {
		if zones[i].start >= at+int64(n) {
			break
		}
		if zones[i].end > at {
			zones[i].sent, zones[i].call = true, call
		}
	}
}

// keep takes an owner's piece that the kernel still needs, and reports whether it has.
func (z *zeroCopy) keep(o owner) bool {
	if z.zones.len() == 0 {
		return false
	}
	first := z.zones.all()[0]
	if first.end != o.end || first.end-first.start != int64(len(o.piece)) {
		return false
	}
	z.zones.pop()
	if z.zones.len() == 0 {
		z.zones.reset()
	}
	if !first.sent || z.sends.finished(first.call) {
		return false
	}
	z.held.push(held{prove(o.piece, o.site), o.piece, o.r, first.call})
	return true
}

// noticed counts the calls from lo to hi as done.
func (z *zeroCopy) noticed(lo, hi uint32, copied bool) {
	z.stats.Notices++
	if !z.sends.complete(lo, hi) {
		z.stats.State = ZeroCopyLost
		return
	}
	z.dry = false
	n := int64(hi-lo) + 1
	if !copied {
		z.stats.Done += n
		return
	}
	z.stats.Copied += n
	if z.stats.State == ZeroCopyOn {
		z.stats.State = ZeroCopyCopied
	}
}

// giveBack releases the pieces that the kernel is done with.
func (w *Writer) giveBack() {
	z := w.zero
	for z.held.len() > 0 && z.sends.finished(z.held.all()[0].call) {
		h := z.held.all()[0]
		z.held.pop()
		h.check(h.piece)
		w.release(h.piece, h.r)
	}
	if z.held.len() == 0 {
		z.held.reset()
	}
}

// Held returns how many pieces the kernel holds that were sent with MSG_ZEROCOPY. It is
// independent of Pending: their bytes are written.
func (w *Writer) Held() int {
	if w.zero == nil {
		return 0
	}
	return w.zero.held.len()
}

// heldError is nil if no piece is held.
func (w *Writer) heldError() error {
	if n := w.Held(); n > 0 {
		return fmt.Errorf("penstock: vecio: %d %w", n, ErrHeld)
	}
	return nil
}
