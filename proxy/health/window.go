package health

import (
	"sync/atomic"
	"time"
)

// slots is into how many parts a window is divided. What is counted is of the last
// nine to ten tenths of its length.
const slots = 10

// A window counts what went well and what failed within the last time. It may be
// used by any number of goroutines at once, and none waits for another.
//
// A slot is one word, so that it is begun anew and added to without a count being
// lost or counted twice: 16 bits tell which turn of the window it is of, 24 bits each
// count. A turn comes again after 65,536 windows; whoever is not called for exactly
// that long sees counts that are that old.
type window struct {
	width  int64        // of a slot, in nanoseconds
	failed atomic.Int64 // the last slot's time in which something failed, plus one
	slot   [slots]atomic.Uint64
}

const (
	okBits   = 24
	okOne    = 1
	failOne  = 1 << okBits
	countMax = 1<<okBits - 1
	turnAt   = 2 * okBits

	// full is from when on a slot's counts are halved, both, which keeps their ratio.
	// There is room above it for all who add to it before they notice.
	full = countMax / 2

	// maxVolume is the largest volume that a window can be asked for: that of one slot
	// that was just halved.
	maxVolume = full / 2
)

func newWindow(length time.Duration) *window { return &window{width: slotWidth(length)} }

// slotWidth is that of the slots of a window of a length.
func slotWidth(length time.Duration) int64 { return max(int64(length)/slots, 1) }

// at returns the slot of a time, and the turn it has to be of.
func (w *window) at(now int64) (*atomic.Uint64, uint64) {
	epoch := uint64(now) / uint64(w.width)
	return &w.slot[epoch%slots], epoch / slots << turnAt
}

// add counts one.
func (w *window) add(now int64, failed bool) {
	one := uint64(okOne)
	if failed {
		one = failOne
		w.note(now)
	}
	slot, turn := w.at(now)
	for {
		old := slot.Load()
		switch {
		case old>>turnAt != turn>>turnAt:
			if slot.CompareAndSwap(old, turn|one) {
				return
			}
		case old&countMax >= full || old>>okBits&countMax >= full:
			slot.CompareAndSwap(old, halved(old))
		default:
			// Whoever begins the slot anew meanwhile has this one counted there: it is of
			// that time as much as of the one before.
			slot.Add(one)
			return
		}
	}
}

// note notes that something failed.
func (w *window) note(now int64) {
	if epoch := now/w.width + 1; w.failed.Load() != epoch {
		w.failed.Store(epoch)
	}
}

// reverse counts one as failed that was counted as well: the latest, or a new one if
// there is none any more.
func (w *window) reverse(now int64) {
	w.note(now)
	epoch := uint64(now) / uint64(w.width)
	for i := range uint64(slots) {
		e := epoch - i
		slot := &w.slot[e%slots]
		for word := slot.Load(); word>>turnAt == e/slots<<turnAt>>turnAt && word&countMax > 0; word = slot.Load() {
			if slot.CompareAndSwap(word, word-okOne+failOne) {
				return
			}
		}
	}
	w.add(now, true)
}

// forgive takes the latest back of those that were counted as failed, if there is one.
func (w *window) forgive(now int64) {
	epoch := uint64(now) / uint64(w.width)
	for i := range uint64(slots) {
		e := epoch - i
		slot := &w.slot[e%slots]
		for word := slot.Load(); word>>turnAt == e/slots<<turnAt>>turnAt && word>>okBits&countMax > 0; word = slot.Load() {
			if slot.CompareAndSwap(word, word-failOne) {
				return
			}
		}
	}
}

// addFailed counts one that failed if allow says so, given what is counted now. Two at
// once are not both allowed what there is only one of, if they are of one slot.
func (w *window) addFailed(now int64, allow func(ok, failed uint64) bool) bool {
	slot, turn := w.at(now)
	for {
		old := slot.Load()
		if !allow(w.sum(now)) {
			return false
		}
		next := old + failOne
		switch {
		case old>>turnAt != turn>>turnAt:
			next = turn | failOne
		case old>>okBits&countMax >= full:
			next = halved(old) + failOne
		}
		if slot.CompareAndSwap(old, next) {
			return true
		}
	}
}

// halved halves both counts.
func halved(word uint64) uint64 {
	ok, failed := word&countMax/2, word>>okBits&countMax/2
	return word>>turnAt<<turnAt | failed<<okBits | ok
}

// well reports that nothing failed within the window, which is known without a sum.
func (w *window) well(now int64) bool { return now/w.width+1-w.failed.Load() >= slots }

// sum returns what was counted.
func (w *window) sum(now int64) (ok, failed uint64) {
	epoch := uint64(now) / uint64(w.width)
	for i := range uint64(slots) {
		e := epoch - i
		word := w.slot[e%slots].Load()
		if word>>turnAt == e/slots<<turnAt>>turnAt {
			ok += word & countMax
			failed += word >> okBits & countMax
		}
	}
	return ok, failed
}

// clear forgets everything.
func (w *window) clear() {
	for i := range w.slot {
		w.slot[i].Store(0)
	}
}

// tooMany reports whether too many failed, as the function does.
func (w *window) tooMany(now int64, percent float64, volume int) (ok, failed uint64, yes bool) {
	if w.well(now) {
		return 0, 0, false
	}
	ok, failed = w.sum(now)
	return ok, failed, tooMany(ok, failed, percent, volume)
}

// tooMany reports whether the part of failures is percent or more, among volume or
// more; 0 percent never is.
func tooMany(ok, failed uint64, percent float64, volume int) bool {
	total := ok + failed
	return percent > 0 && failed > 0 && total >= min(uint64(max(volume, 1)), maxVolume) &&
		float64(failed)*100 >= percent*float64(total)
}
