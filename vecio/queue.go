package vecio

import "sync"

// A queue is the pieces that a writer has taken and not yet written. A writer has one while
// something is pending, and none when it is idle.
//
// Positions are counts of bytes since the writer began. Everything up to the writer's
// written is cut off or given back.
type queue struct {
	checks // of the spans that are not ours, with the build tag invariants

	spans   fifo[[]byte] // to be written, in order; none is empty
	owners  fifo[owner]  // to be given back, in order of the position
	lengths lengths

	open  *buffer // where small pieces are copied to; nil: there is none yet
	tail  bool    // the last span ends where open's used part does
	next  uint8   // size of the next buffer
	turns int     // buffers that were leased
}

// An owner waits for a piece, or a buffer waits for its contents, to be written.
type owner struct {
	site  // where it was given
	end   int64
	piece []byte
	r     Releaser
}

var queues = sync.Pool{New: func() any { return new(queue) }}

// recycle makes the queue, which has given everything back, fit for another writer: no
// header is left that points anywhere.
func (q *queue) recycle() {
	q.spans.reset()
	q.owners.reset()
	q.lengths.reset()
	q.checks.reset()
	q.open, q.tail, q.next, q.turns = nil, false, 0, 0
	queues.Put(q)
}

// refer adds a span that is not ours, and not empty.
func (q *queue) refer(p []byte) {
	q.spans.push(p)
	q.tail = false
}

// copy adds the bytes of p, which begin at that position.
func (q *queue) copy(p []byte, at int64) {
	for len(p) > 0 {
		if q.open == nil || q.open.used == len(q.open.data) {
			q.turn(at)
		}
		b := q.open
		n := copy(b.data[b.used:], p)
		q.extend(n)
		p, at = p[n:], at+int64(n)
	}
}

// extend makes n bytes more of the open buffer, which are there, the end of the spans.
func (q *queue) extend(n int) {
	b := q.open
	if last := q.spans.last(); q.tail && last != nil {
		*last = (*last)[:len(*last)+n]
	} else {
		q.spans.push(b.data[b.used : b.used+n])
		q.tail = true
	}
	b.used += n
}

// turn replaces the open buffer, which is full at that position. If all that is pending is in
// a small one, it moves to the larger one: it is little, and then it goes with the next bytes
// as one span.
func (q *queue) turn(at int64) {
	b := leaseBuffer(q.next)
	q.turns++
	if q.next = 1; q.copied() && len(q.open.data) < len(b.data) {
		b.used = copy(b.data, q.spans.all()[0])
		*q.spans.last() = b.data[:b.used]
		q.open.Release(nil)
		q.open = b
		return
	}
	q.shut(at)
	q.open = b
}

// crowded reports whether there is so much beside the bytes that no piece should come,
// though it may have none.
func (q *queue) crowded() bool { return q.lengths.runs.len() >= maxRuns || q.owners.len() >= maxRuns }

// ample reports whether the copied bytes have filled more than a small buffer.
func (q *queue) ample() bool {
	return q.turns > 1 || q.open != nil && q.open.used > sizes[0]
}

// copied reports whether all that is pending is one span of the open buffer.
func (q *queue) copied() bool { return q.tail && q.spans.len() == 1 }

// shut makes the open buffer one that is given back when all up to there is written.
func (q *queue) shut(at int64) {
	if q.open != nil {
		q.owners.push(owner{end: at, r: q.open})
		q.open, q.tail = nil, false
	}
}

// cut takes n written bytes off the spans.
func (q *queue) cut(n int) {
	for n > 0 {
		first := &q.spans.items[q.spans.head]
		if n < len(*first) {
			*first = (*first)[n:]
			return
		}
		n -= len(*first)
		q.spans.pop()
	}
}

// A fifo is an array of which the front is taken. It grows like a slice and, when the
// front is larger than the rest, moves that down in place.
type fifo[T any] struct {
	items []T
	head  int
}

// keep is the longest array that is kept for another writer.
const keep = 1 << 14

func (f *fifo[T]) len() int { return len(f.items) - f.head }

func (f *fifo[T]) all() []T { return f.items[f.head:] }

func (f *fifo[T]) push(x T) {
	if len(f.items) == cap(f.items) && f.head > len(f.items)/2 {
		f.slide()
	}
	f.items = append(f.items, x)
}

// last returns nil if there is none.
func (f *fifo[T]) last() *T {
	if f.len() == 0 {
		return nil
	}
	return &f.items[len(f.items)-1]
}

// pop drops the first, and all that it points at.
func (f *fifo[T]) pop() {
	var zero T
	f.items[f.head] = zero
	f.head++
}

func (f *fifo[T]) drop(n int) {
	clear(f.items[f.head : f.head+n])
	f.head += n
}

func (f *fifo[T]) slide() {
	n := copy(f.items, f.items[f.head:])
	clear(f.items[n:])
	f.items, f.head = f.items[:n], 0
}

// reset clears the rest, unless it is numbers, and drops an array that is too long to keep.
func (f *fifo[T]) reset() {
	if _, numbers := any(f.items).([]int64); !numbers {
		clear(f.items[f.head:])
	}
	f.items, f.head = f.items[:0], 0
	if cap(f.items) > keep {
		f.items = nil
	}
}
