package evring

import "runtime"

// ErrEmpty is the error of Pop where no event is ready.
var ErrEmpty = errEmpty

// Pop moves the oldest event into buf and returns its length. ErrEmpty: none is ready;
// ErrTooLong: buf is shorter than the event, which stays; otherwise that of Err. A buf of
// EventSize bytes is always long enough.
//
// An event that a producer has claimed and not published yet is not ready, and neither are
// those behind it. If that producer dies, a Multi ring stays like this for ever: it fills up,
// and nothing spins.
func (r *Ring) Pop(buf []byte) (int, error) {
	if r.slots == 0 {
		return 0, ErrClosed
	}
	head := r.memory.head().Load()
	n, err := r.copyOut(head, buf)
	if err == nil {
		r.free(head + 1)
	}
	runtime.KeepAlive(r)
	return n, err
}

// Memfd returns the number of the memory's descriptor. It is the Ring's, until Close.
func (r *Ring) Memfd() int { return r.number(r.memfd) }

// Slots returns how many events fit.
func (r *Ring) Slots() int { return int(r.slots) }

// Claim takes positions and leaves them unpublished, as a producer does that stops in
// the middle of a push.
func (r *Ring) Claim(want int) (pos uint64, n int, err error) { return r.claim(want) }

// Publish is the second half of a push, without a wakeup.
func (r *Ring) Publish(pos uint64, events [][]byte) { r.publish(pos, events) }

// Bytes is the shared memory.
func (r *Ring) Bytes() []byte { return r.memory }

// Asleep is the flag.
func (r *Ring) Asleep() uint32 { return r.memory.asleep().Load() }

// Wake does the work of a producer that has seen a flag.
func (r *Ring) Wake(ticket uint32) { r.wake(ticket) }

// NewOnHeap makes a ring whose memory is Go's, where the race detector sees every
// access.
func NewOnHeap(cfg *Config) (*Ring, error) {
	r, err := New(cfg)
	if err != nil {
		return nil, err
	}
	r.memory = make([]byte, len(r.memory))
	r.memory.describe(r.shape)
	return r, nil
}

// Where things are.
const (
	MagicAt, SlotsAt, SlotSizeAt, ProducersAt = magicAt, slotsAt, slotSizeAt, producersAt
	TailAt, HeadAt, HeaderSize                = tailAt, headAt, headerSize
)
