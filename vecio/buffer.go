package vecio

import "sync"

// A buffer is where small pieces are copied to: data[:used] is taken.
type buffer struct {
	data []byte
	used int
	size uint8 // index of sizes
}

// The sizes of buffers. A writer's first one is small, because little is pending with most
// slow peers, unless that was not enough the last time; the next ones are larger. The last
// size is for Writes of PathCoalesced.
var sizes = [...]int{4 << 10, 64 << 10, 1 << 20}

// The pools of this package are sync.Pools. They hold plain memory: nothing has to be closed,
// no account is kept, and the collector frees it when no writer is in use. A pool.Pool would
// have to be closed, and would need a bound and a timer to shrink.
var buffers [len(sizes)]sync.Pool

func leaseBuffer(size uint8) *buffer {
	if b, _ := buffers[size].Get().(*buffer); b != nil {
		return b
	}
	return &buffer{data: make([]byte, sizes[size]), size: size}
}

// Release makes a buffer one of the things that a queue gives back.
func (b *buffer) Release([]byte) {
	b.used = 0
	buffers[b.size].Put(b)
}
