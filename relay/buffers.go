package relay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/penstock/penstock/arena"
	"github.com/penstock/penstock/pool"
)

// A buffer is the buffer of one copied read.
type buffer struct {
	b        []byte
	slot     arena.Handle // of a loop's buffer
	unpooled bool         // the heap's: made after the pool was closed, or beyond the arena
}

// Idle buffers beyond these are given back to the collector.
const (
	maxIdleBuffers = 1024
	bufferIdleTime = 10 * time.Second
)

// The sizes of the buffers that directions hold while they wait inside of a wrapper's Read, besides
// [Config.WrappedBuffer].
const (
	smallBuffer  = 1 << 10
	mediumBuffer = 8 << 10
)

// bufferSizes returns the sizes of a relay's buffers, in ascending order.
func (c *Config) bufferSizes() []int {
	sizes := []int{smallBuffer, mediumBuffer, copyBuffer, bufferSize, min(c.WrappedBuffer, copyBuffer), c.WrappedBuffer}
	slices.Sort(sizes)
	return slices.Compact(sizes)
}

// openBuffers makes the pools.
func (r *Relay) openBuffers() error {
	for _, size := range r.cfg.bufferSizes() {
		p, err := pool.New(pool.Config[*buffer]{
			New:      func(context.Context) (*buffer, error) { return &buffer{b: make([]byte, size)}, nil },
			MaxIdle:  maxIdleBuffers,
			IdleTime: bufferIdleTime,
		})
		if err != nil {
			return errors.Join(fmt.Errorf("penstock: relay: buffers: %w", err), r.closeBuffers())
		}
		r.buffers = append(r.buffers, bufferPool{size, p})
	}
	return nil
}

// A bufferPool has the buffers of one size.
type bufferPool struct {
	size int
	*pool.Pool[*buffer]
}

func (r *Relay) closeBuffers() (err error) {
	for _, p := range r.buffers {
		err = errors.Join(err, p.Close())
	}
	return err
}

// bufferStats is the sum of the pools' statistics.
func (r *Relay) bufferStats() (sum pool.Stats) {
	for _, p := range r.buffers {
		s := p.Stats()
		sum.Made, sum.Closed, sum.Live, sum.Idle = sum.Made+s.Made, sum.Closed+s.Closed, sum.Live+s.Live, sum.Idle+s.Idle
		sum.Hits, sum.Misses, sum.Steals = sum.Hits+s.Hits, sum.Misses+s.Misses, sum.Steals+s.Steals
		sum.Evictions, sum.Discards = sum.Evictions+s.Evictions, sum.Discards+s.Discards
		sum.Refusals, sum.Overflows = sum.Refusals+s.Refusals, sum.Overflows+s.Overflows
	}
	return sum
}

// poolOf returns the pool of the buffers of a size; nil if there is none.
func (r *Relay) poolOf(size int) *pool.Pool[*buffer] {
	for _, p := range r.buffers {
		if p.size == size {
			return p.Pool
		}
	}
	return nil
}

func (r *Relay) buffer(size int) (*buffer, error) {
	b, err := r.poolOf(size).Get(context.Background())
	if err != nil {
		// Close has been called; sessions that still run go on without the pool.
		return &buffer{b: make([]byte, size), unpooled: true}, nil
	}
	return b, nil
}

func (r *Relay) returnBuffer(b *buffer) {
	if !b.unpooled {
		r.poolOf(len(b.b)).Put(b)
	}
}

// A waitingBuffer chooses the size of the buffer in which a wrapper's Read waits. For a stream it is one that the
// last read would have fitted into, and the largest after a read that filled its buffer. So a session
// with small messages holds little while it is idle, and bulk is read in few pieces.
type waitingBuffer struct {
	size int // the first is small, because the first wait of a session may be a long one
	readSizes
}

// note takes a read of n bytes into a buffer of the present size.
func (w *waitingBuffer) note(n int) {
	switch {
	case n >= w.size:
		w.size = w.largest
	case n < smallBuffer:
		w.size = max(smallBuffer, w.least)
	case n < mediumBuffer:
		w.size = max(min(mediumBuffer, w.largest), w.least)
	}
}
