package compare

import (
	"sync"
	"unsafe"
)

// A segment is a part of the bytes that one side is ahead by.
type segment struct {
	next     *segment
	from, to int // of b: the bytes that it holds
	b        [488]byte
}

const segmentBytes = int(unsafe.Sizeof(segment{}))

var segments = sync.Pool{New: func() any { return new(segment) }}

// A fifo is a queue of bytes in segments. It holds none while it is empty.
type fifo struct {
	first, last *segment
}

// push adds the bytes that the purse has room for, and returns how many.
func (f *fifo) push(p *purse, b []byte) (n int) {
	for len(b) > 0 {
		if f.last == nil || f.last.to == len(f.last.b) {
			if p.lead+segmentBytes > keepBytes || !p.take(segmentBytes) {
				return n
			}
			p.lead += segmentBytes
			s := segments.Get().(*segment)
			s.next, s.from, s.to = nil, 0, 0
			if f.last == nil {
				f.first = s
			} else {
				f.last.next = s
			}
			f.last = s
		}
		m := copy(f.last.b[f.last.to:], b)
		f.last.to += m
		n, b = n+m, b[m:]
	}
	return n
}

// head returns the oldest bytes that lie together, at most n.
func (f *fifo) head(n int) []byte {
	if f.first == nil {
		return nil
	}
	b := f.first.b[f.first.from:f.first.to]
	return b[:min(n, len(b))]
}

// pop removes the n oldest bytes.
func (f *fifo) pop(p *purse, n int) {
	for n > 0 && f.first != nil {
		s := f.first
		m := min(n, s.to-s.from)
		s.from += m
		n -= m
		if s.from < s.to {
			return
		}
		f.first = s.next
		if f.first == nil {
			f.last = nil
		}
		p.lead -= segmentBytes
		p.give(segmentBytes)
		segments.Put(s)
	}
}

// clear removes all bytes.
func (f *fifo) clear(p *purse) {
	for f.first != nil {
		f.pop(p, f.first.to-f.first.from)
	}
}

// chunkLen is how many values a chunk has.
const chunkLen = 31

// A chunk is a part of the values of a queue.
type chunk[T any] struct {
	next     *chunk[T]
	from, to int32 // of v: the values that it holds
	v        [chunkLen]T
}

// A queue is a queue of values in chunks. It never moves them, so it needs no more memory to grow than it has then. An
// empty one holds a chunk at most.
type queue[T any] struct {
	first, last *chunk[T]
	n           int
}

func (q *queue[T]) chunkBytes() int { return int(unsafe.Sizeof(chunk[T]{})) }

// push adds a value, or returns false if the purse has no room.
func (q *queue[T]) push(p *purse, v T) bool {
	if q.last == nil || q.last.to == chunkLen {
		if !p.take(q.chunkBytes()) {
			return false
		}
		c := new(chunk[T])
		if q.last == nil {
			q.first = c
		} else {
			q.last.next = c
		}
		q.last = c
	}
	q.last.v[q.last.to] = v
	q.last.to++
	q.n++
	return true
}

// head returns the oldest value of a queue that is not empty.
func (q *queue[T]) head() T { return q.first.v[q.first.from] }

// pop removes the oldest value of a queue that is not empty, and returns it.
func (q *queue[T]) pop(p *purse) T {
	c := q.first
	v := c.v[c.from]
	c.from++
	q.n--
	switch {
	case q.n == 0:
		c.from, c.to = 0, 0
	case c.from == c.to:
		q.first = c.next
		p.give(q.chunkBytes())
	}
	return v
}

// clear removes all values, and gives their memory back.
func (q *queue[T]) clear(p *purse) {
	for ; q.first != nil; q.first = q.first.next {
		p.give(q.chunkBytes())
	}
	*q = queue[T]{}
}
