package health

import (
	"sync/atomic"
	"time"
)

// slots is the number of parts of a window. A window therefore counts over the last nine to ten
// tenths of its length.
const slots = 10

// A window counts recent successes and failures. It is safe for concurrent use,
// and no goroutine waits for another.
//
// A slot is one word, so that beginning it again and adding to it lose no count and count nothing twice: 16 bits for the
// turn of the window to which it belongs, 24 bits for each count. Turns repeat after 65,536 windows. If a window is not
// used for exactly that long, it shows counts from that time.
type window struct {
	width  int64        // of a slot, in nanoseconds
	failed atomic.Int64 // the slot time of the last failure, plus one
	slot   [slots]atomic.Uint64
}

const (
	okBits   = 24
	okOne    = 1
	failOne  = 1 << okBits
	countMax = 1<<okBits - 1
	turnAt   = 2 * okBits

	// full is the count at which both counts of a slot are halved, so that they keep their ratio. There is room above it
	// for all goroutines that add before they notice.
	full = countMax / 2

	// maxVolume is the largest usable volume: the count of a single slot that was just halved.
	maxVolume = full / 2
)

func newWindow(length time.Duration) *window { return &window{width: slotWidth(length)} }

// slotWidth returns the width of a slot of a window with a length.
func slotWidth(length time.Duration) int64 { return max(int64(length)/slots, 1) }

// at returns the slot of a time, and the turn that the slot must have.
func (w *window) at(now int64) (*atomic.Uint64, uint64) {
	epoch := uint64(now) / uint64(w.width)
	return &w.slot[epoch%slots], epoch / slots << turnAt
}

// add counts one success or failure.
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
			// If another goroutine begins the slot again meanwhile, the new slot counts this one, which is as right.
			slot.Add(one)
			return
		}
	}
}

// note records a failure.
func (w *window) note(now int64) {
	if epoch := now/w.width + 1; w.failed.Load() != epoch {
		w.failed.Store(epoch)
	}
}

// reverse turns the latest success into a failure. If there is no success left, it adds a failure.
func (w *window) reverse(now int64) {
	w.note(now)
	if !w.change(now, 0, failOne-okOne) {
		w.add(now, true)
	}
}

// forgive removes the latest failure, if there is one.
func (w *window) forgive(now int64) { w.change(now, okBits, -failOne) }

// change changes one count (given by its place in a word) of the latest slot in which it is not 0, and reports whether
// there is such a slot.
func (w *window) change(now int64, count int, by int64) bool {
	epoch := uint64(now) / uint64(w.width)
	for i := range uint64(slots) {
		e := epoch - i
		slot := &w.slot[e%slots]
		for word := slot.Load(); word>>turnAt == e/slots<<turnAt>>turnAt && word>>count&countMax > 0; word = slot.Load() {
			if slot.CompareAndSwap(word, word+uint64(by)) {
				return true
			}
		}
	}
	return false
}

// addFailed counts a failure if allow agrees, given the present counts. If there is room for only one, two concurrent calls
// for the same slot do not both get it.
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

// well reports, without summing, whether nothing has failed within the window.
func (w *window) well(now int64) bool { return now/w.width+1-w.failed.Load() >= slots }

// sum returns the counts.
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

// clear resets all counts.
func (w *window) clear() {
	for i := range w.slot {
		w.slot[i].Store(0)
	}
}

// tooMany is the function tooMany with the window's counts.
func (w *window) tooMany(now int64, percent float64, volume int) (ok, failed uint64, yes bool) {
	if w.well(now) {
		return 0, 0, false
	}
	ok, failed = w.sum(now)
	return ok, failed, tooMany(ok, failed, percent, volume)
}

// tooMany reports whether the part of failures is percent or more, among volume or more; never if percent is 0.
func tooMany(ok, failed uint64, percent float64, volume int) bool {
	total := ok + failed
	return percent > 0 && failed > 0 && total >= min(uint64(max(volume, 1)), maxVolume) &&
		float64(failed)*100 >= percent*float64(total)
}

// RetryBudgetConfig configures a [RetryBudget].
type RetryBudgetConfig struct {
	// Ratio is the number of retries allowed within Window for each connection begun in it; 0:
	// no retries at all.
	Ratio float64
	// Floor is the number of retries allowed within Window in any case, unless Ratio is 0, so
	// that little traffic is retried at all.
	Floor  int
	Window time.Duration
}

// A RetryBudget bounds retries, so that they do not overload a failing upstream. It is safe
// for concurrent use, never waits, and allocates nothing. A nil *RetryBudget grants
// everything.
type RetryBudget struct {
	cfg    atomic.Pointer[RetryBudgetConfig]
	window *window
	denied atomic.Int64
}

// NewRetryBudget returns a RetryBudget.
func NewRetryBudget(cfg *RetryBudgetConfig) *RetryBudget {
	b := &RetryBudget{window: newWindow(cfg.Window)}
	b.Configure(cfg)
	return b
}

// Configure replaces Ratio and Floor; Window stays as it was.
func (b *RetryBudget) Configure(cfg *RetryBudgetConfig) { b.cfg.Store(cfg) }

// Began counts a connection: one client, however often it is retried.
func (b *RetryBudget) Began(now int64) {
	if b != nil {
		b.window.add(now, false)
	}
}

// Retry takes a retry, if the budget has one.
func (b *RetryBudget) Retry(now int64) bool {
	if b == nil {
		return true
	}
	cfg := b.cfg.Load()
	granted := cfg.Ratio > 0 && b.window.addFailed(now, func(ok, failed uint64) bool {
		return float64(failed+1) <= max(float64(cfg.Floor), cfg.Ratio*float64(ok)+1e-9)
	})
	if !granted {
		b.denied.Add(1)
	}
	return granted
}

// Repay gives back a retry that has found an endpoint: the budget bounds only failed attempts.
func (b *RetryBudget) Repay(now int64) {
	if b != nil {
		b.window.forgive(now)
	}
}

// Denied returns the number of retries that were not granted.
func (b *RetryBudget) Denied() int64 {
	if b == nil {
		return 0
	}
	return b.denied.Load()
}
