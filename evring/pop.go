package evring

import (
	"fmt"
	"os"
	"runtime"
)

var errNilFunc = fmt.Errorf("penstock: evring: drain: f is nil: %w", os.ErrInvalid)

// Drain calls f with each event in turn, at most max of them, or one lap if max is not positive, and returns
// how many. An event is a private copy, valid until f returns. Producers get the slots when Drain returns, or f
// panics. f must not call Drain. The error is nil if nothing more is ready, and otherwise the result of Err.
func (r *Ring) Drain(max int, f func(event []byte)) (n int, err error) {
	if max <= 0 || max > int(r.slots) {
		max = int(r.slots)
	}
	if r.slots == 0 {
		return 0, ErrClosed
	}
	head := r.memory.head().Load()
	defer func() {
		if n > 0 {
			r.free(head + uint64(n))
		}
		runtime.KeepAlive(r)
	}()
	for n < max {
		length, ready := r.copyOut(head + uint64(n))
		if !ready {
			return n, r.Err()
		}
		if f == nil {
			return n, errNilFunc
		}
		n++ // the event counts, whatever f does
		f(r.scratch[:length])
	}
	return n, nil
}

// copyOut copies the event at a position into scratch, if it is ready. It reads the word once; a later change of
// the word, or of the event during the copy, damages only this event.
func (r *Ring) copyOut(pos uint64) (length int, ready bool) {
	if r.Err() != nil {
		return 0, false
	}
	at := r.offset(pos)
	word := r.memory.word64(at).Load()
	lap := uint32(word >> 32)
	switch want := r.lap(pos); {
	case lap == want-1:
		return 0, false
	case lap != want:
		_ = r.fail(stateLap)
		return 0, false
	case uint32(word) > uint32(r.EventSize()):
		_ = r.fail(stateLength)
		return 0, false
	}
	r.follow()
	return copy(r.scratch, r.memory[at+wordSize:][:uint32(word)]), true
}

// free gives producers the slots before a position.
func (r *Ring) free(pos uint64) {
	r.lead()
	r.memory.head().Store(pos)
}

// ready reports whether Drain would do anything, even if it would only report an error.
func (r *Ring) ready() bool {
	pos := r.memory.head().Load()
	lap := uint32(r.memory.word64(r.offset(pos)).Load() >> 32)
	return r.Err() != nil || lap != r.lap(pos)-1
}

// Sleep announces that the consumer is about to wait on Eventfd, and reports whether it may wait: false means
// that an event is ready, or that Drain has an error to report. In both cases call Awake afterwards. The
// package's documentation says why no wake-up is lost.
func (r *Ring) Sleep() (mayBlock bool) {
	if r.slots == 0 {
		return false
	}
	r.ticket++
	if r.ticket == 0 {
		r.ticket++ // 0 is no valid ticket
	}
	r.memory.asleep().Store(r.ticket)
	mayBlock = !r.ready()
	if !mayBlock {
		r.memory.asleep().Store(0)
	}
	runtime.KeepAlive(r)
	return mayBlock
}

// Awake ends Sleep: from now on no push costs a system call. signalled says that Eventfd was found readable and
// has not been read; then Awake reads it. An eventfd that is watched with EPOLLET need never be read.
//
// A producer may have seen the flag and write later, and so wake the consumer for nothing. So take signalled
// from the poll's result, not from what is in the ring.
func (r *Ring) Awake(signalled bool) {
	if r.slots == 0 {
		return
	}
	r.memory.asleep().Store(0)
	if signalled {
		r.clear()
	}
	runtime.KeepAlive(r)
}
