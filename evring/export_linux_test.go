package evring

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
