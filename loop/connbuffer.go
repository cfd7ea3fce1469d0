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

// buffers are those of 4, 8, 16, 32 and 64 KiB that are not in use, and that no loop keeps.
var buffers [5]sync.Pool

// leases are the buffers that a loop keeps, of each size so many. They spare it the pools, which the collector
// empties: to make a buffer needs more stack than a coroutine has, and one that has grown stays so.
type leases [len(buffers)]struct {
	n    int
	kept [keptBuffers]*buffer
}

const keptBuffers = 16

func classOf(n int) int { return bits.Len(uint(max(n, minBuffer)-1)) - bits.Len(uint(minBuffer-1)) }

// lease returns a buffer of n bytes or more.
func (l *leases) lease(n int) *buffer {
	k := classOf(n)
	if k >= len(l) {
		return makeBuffer(k)
	}
	of := &l[k]
	if of.n == 0 {
		if b, ok := buffers[k].Get().(*buffer); ok {
			return b
		}
		return makeBuffer(k)
	}
	of.n--
	return of.kept[of.n]
}

// makeBuffer makes one of a power of two, so that pieces which are added one by one are copied a few times.
func makeBuffer(class int) *buffer { return &buffer{b: make([]byte, minBuffer<<class)} }

// release takes a buffer back.
func (l *leases) release(b *buffer) {
	k := classOf(len(b.b))
	if k >= len(l) {
		return
	}
	b.r, b.w = 0, 0
	if of := &l[k]; of.n < keptBuffers {
		of.kept[of.n] = b
		of.n++
		return
	}
	buffers[k].Put(b)
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

// room returns a buffer with the bytes of b in which there is room for n in all, those included, and for one
// more than there are.
func (l *leases) room(b *buffer, n int) *buffer {
	switch n = max(n, b.len()+1); {
	case b == nil:
		return l.lease(n)
	case n <= len(b.b)-b.r:
	case n <= len(b.b):
		b.w = copy(b.b, b.b[b.r:b.w])
		b.r = 0
	default:
		to := l.lease(n)
		to.w = copy(to.b, b.b[b.r:b.w])
		l.release(b)
		return to
	}
	return b
}
