package loop

import (
	"math/bits"
	"sync"
)

// A buffer is the bytes of a [Conn] that wait to be taken, or to be written: b[r:w].
type buffer struct {
	b    []byte
	r, w int
}

const (
	minBuffer = 4 << 10
	maxBuffer = 64 << 10 // of those that are used again
)

// buffers are those of 4, 8, 16, 32 and 64 KiB that are not in use.
var buffers [5]sync.Pool

func classOf(n int) int { return bits.Len(uint(max(n, minBuffer)-1)) - bits.Len(uint(minBuffer-1)) }

func lease(n int) *buffer {
	k := classOf(n)
	if k >= len(buffers) {
		return &buffer{b: make([]byte, minBuffer<<k)} // so that pieces which are added one by one are copied a few times
	}
	if b, ok := buffers[k].Get().(*buffer); ok {
		return b
	}
	return &buffer{b: make([]byte, minBuffer<<k)}
}

func (b *buffer) release() {
	if k := classOf(len(b.b)); k < len(buffers) {
		b.r, b.w = 0, 0
		buffers[k].Put(b)
	}
}

func (b *buffer) len() int {
	if b == nil {
		return 0
	}
	return b.w - b.r
}

func (b *buffer) bytes() []byte {
	if b == nil {
		return nil
	}
	return b.b[b.r:b.w:b.w]
}

// room returns a buffer with the same bytes in which there is room for n in all, those included, and for one
// more than there are.
func (b *buffer) room(n int) *buffer {
	switch n = max(n, b.len()+1); {
	case b == nil:
		return lease(n)
	case n <= len(b.b)-b.r:
	case n <= len(b.b):
		b.w = copy(b.b, b.b[b.r:b.w])
		b.r = 0
	default:
		to := lease(n)
		to.w = copy(to.b, b.b[b.r:b.w])
		b.release()
		return to
	}
	return b
}
