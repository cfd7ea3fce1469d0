package vecio

import "sync"

// A buffer is where small pieces are copied to: data[:used] is taken.
type buffer struct {
	data []byte
	used int
	size uint8 // index of sizes
}

// The sizes of buffers. A writer's first one is small, because most of what is pending
// with a slow peer is little, unless that was not enough the last time; what follows is
// larger. The last size is for Writes of
// PathCoalesced.
var sizes = [...]int{4 << 10, 64 << 10, 1 << 20}

// The pools of this package are sync.Pools. What is in them is plain memory: nothing
// has to be closed, no account is kept, and it should go when nobody writes any more,
// which is what the collector does with it. pool.Pool would need somebody to close it,
// a bound to choose, and a timer to shrink.
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
