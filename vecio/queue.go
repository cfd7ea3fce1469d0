package vecio

import "sync"

// A queue holds the pieces that a writer has taken and not yet written. A writer has one while something is
// pending, and none when it is idle.
//
// Positions count bytes since the writer began. Everything before Writer.written is cut off or given back.
type queue struct {
	checks // of the borrowed spans, with the build tag invariants

	spans   fifo[[]byte] // to be written, in order; none is empty
	owners  fifo[owner]  // to be given back, in order of their end
	lengths lengths

	open  *buffer // small pieces are copied to it; nil: there is none yet
	tail  bool    // the last span ends where the used part of open does
	next  uint8   // size of the next buffer
	turns int     // number of buffers leased
}

// An owner is a piece, or a buffer with copied pieces, to be given back when it is written.
type owner struct {
	site  // where it was given
	end   int64
	piece []byte
	r     Releaser
}

var queues = sync.Pool{New: func() any { return new(queue) }}

// recycle makes the queue, which has given everything back, ready for another writer: it leaves no slice that
// points anywhere.
func (q *queue) recycle() {
	q.spans.reset()
	q.owners.reset()
	q.lengths.reset()
	q.checks.reset()
	q.open, q.tail, q.next, q.turns = nil, false, 0, 0
	queues.Put(q)
}

// refer adds a borrowed, non-empty span.
func (q *queue) refer(p []byte) {
	q.spans.push(p)
	q.tail = false
}

// copy adds the bytes of p, which begin at the position at.
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

// extend adds the next n bytes of the open buffer, already filled, to the spans.
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

// turn replaces the open buffer, which is full at the position at. If all pending bytes are in a small buffer,
// they move to the new one, and form one span with the next bytes.
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

// crowded reports whether so many lengths or owners are pending that no further piece may come, not even an
// empty one.
func (q *queue) crowded() bool { return q.lengths.runs.len() >= maxRuns || q.owners.len() >= maxRuns }

// ample reports whether the copied bytes have filled more than a small buffer.
func (q *queue) ample() bool {
	return q.turns > 1 || q.open != nil && q.open.used > sizes[0]
}

// copied reports whether everything pending is one span of the open buffer.
func (q *queue) copied() bool { return q.tail && q.spans.len() == 1 }

// shut closes the open buffer, which is given back when everything up to its end is written.
func (q *queue) shut(at int64) {
	if q.open != nil {
		q.owners.push(owner{end: at, r: q.open})
		q.open, q.tail = nil, false
	}
}

// cut removes n written bytes from the spans.
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

// A fifo is an array that is read from the front. It grows like a slice. When the part already read is larger
// than the rest, the rest moves down in place.
type fifo[T any] struct {
	items []T
	head  int
}

// keep is the greatest length of an array that is kept for another writer.
const keep = 1 << 14

func (f *fifo[T]) len() int { return len(f.items) - f.head }

func (f *fifo[T]) all() []T { return f.items[f.head:] }

func (f *fifo[T]) push(x T) {
	if len(f.items) == cap(f.items) && f.head > len(f.items)/2 {
		f.slide()
	}
	f.items = append(f.items, x)
}

// last returns the last item, or nil.
func (f *fifo[T]) last() *T {
	if f.len() == 0 {
		return nil
	}
	return &f.items[len(f.items)-1]
}

// pop drops the first item.
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

// A buffer is where small pieces are copied to: data[:used] is taken.
type buffer struct {
	data []byte
	used int
	size uint8 // index of sizes
}

// The sizes of buffers. A writer's first buffer is small, because most slow peers leave little pending. If
// that was not enough the last time, the first one is larger. Its next ones are larger. The last size is for
// Writes of PathCoalesced.
var sizes = [...]int{4 << 10, 64 << 10, 1 << 20}

// The pools of this package are sync.Pools. They hold plain memory: nothing has to be closed or counted, and
// the collector frees it when no writer is in use. A pool.Pool would have to be closed, and would need a bound
// and a timer to shrink.
var buffers [len(sizes)]sync.Pool

func leaseBuffer(size uint8) *buffer {
	if b, _ := buffers[size].Get().(*buffer); b != nil {
		return b
	}
	return &buffer{data: make([]byte, sizes[size]), size: size}
}

// Release implements [Releaser], so that a queue gives a buffer back like a piece.
func (b *buffer) Release([]byte) {
	b.used = 0
	buffers[b.size].Put(b)
}

// A run is a sequence of pieces with the same length.
type run struct{ size, count int }

// lengths are the lengths of the pending pieces, including empty ones, in order; they show to which piece a
// byte belongs. Most programs write pieces of a few lengths, and counting equal pieces costs less than storing
// each one: BenchmarkWrite at 64 bytes.
type lengths struct {
	runs  fifo[run]
	count int64 // of pieces
	base  int64 // position where the first piece begins
}

// add adds count pieces of the same length.
func (l *lengths) add(size, count int) {
	l.count += int64(count)
	if last := l.runs.last(); last != nil && last.size == size {
		last.count += count
		return
	}
	l.runs.push(run{size, count})
}

// reached returns how many pieces end at or before a position, and how far the position is beyond the end of
// the last of them.
func (l *lengths) reached(at int64) (pieces, offset int64) {
	end := l.base
	for _, r := range l.runs.all() {
		n := int64(r.count)
		if r.size > 0 {
			n = min(n, (at-end)/int64(r.size))
		}
		pieces, end = pieces+n, end+n*int64(r.size)
		if n < int64(r.count) {
			break
		}
	}
	return pieces, at - end
}

// forget drops runs that are written, once there are many, and returns their number of pieces.
func (l *lengths) forget(written int64) (pieces int64) {
	if l.runs.len() < 1024 {
		return 0
	}
	n := 0
	for _, r := range l.runs.all() {
		end := l.base + int64(r.size)*int64(r.count)
		if end > written {
			break
		}
		n, pieces, l.base = n+1, pieces+int64(r.count), end
	}
	l.runs.drop(n)
	l.count -= pieces
	return pieces
}

func (l *lengths) reset() {
	l.runs.reset()
	l.count = 0
}

// Most pieces are short: for them Append only checks whether they fit into free. free is empty whenever there is
// more to consider.
//
// Invariant: free is nil, or begins in the open buffer where its used part ends, and is as long as fits into
// the buffer and below the high mark. Its first filled bytes are of short pieces; they are pending, but are not
// yet in a span or in appended. like is the last run of these pieces, which the queue does not know. sync makes
// a span of them; it comes before everything that reads the spans, the buffer or the lengths.

// alike adds a short piece as long as the one before it, in the simplest case.
func (w *Writer) alike(n int) bool {
	// An empty piece is not simple, because there may be no queue.
	if n != w.like.size || uint(n-1) >= uint(len(w.free)-w.filled) {
		return false
	}
	w.like.count++
	return true
}

// short does what alike does, for a short piece of any length.
func (w *Writer) short(n int) bool {
	if n >= w.config.CopyBelow || uint(n-1) >= uint(len(w.free)-w.filled) || w.q.lengths.runs.len() >= maxRuns {
		return false
	}
	w.noteLike()
	w.like = run{n, 1}
	return true
}

// noteLike adds the short pieces of like to the queue's lengths.
func (w *Writer) noteLike() {
	if w.like.count > 0 {
		w.q.lengths.add(w.like.size, w.like.count)
	}
	w.like = run{}
}

// offer makes room for short pieces after other pieces were added.
func (w *Writer) offer() {
	if w.q == nil || w.q.open == nil || w.config.Bound > 0 {
		return
	}
	b := w.q.open
	room := max(w.config.High-w.Pending(), 0)
	w.free, w.filled = b.data[b.used:b.used+min(room, len(b.data)-b.used)], 0
}

// sync makes a span of the short pieces in free.
func (w *Writer) sync() {
	if w.free == nil {
		return
	}
	if w.filled > 0 {
		w.q.extend(w.filled)
		w.appended += int64(w.filled)
		w.noteLike()
	}
	w.free, w.filled = nil, 0
}

// long adds a piece by reference, in the simplest case.
func (w *Writer) long(p []byte) bool {
	q := w.q
	if q == nil || w.free != nil || w.full || len(p) == 0 || w.config.Bound > 0 || w.Pending()+len(p) > w.config.High {
		return false
	}
	if q.lengths.runs.len() >= maxRuns {
		return false
	}
	w.stats.Refs++
	w.stats.RefBytes += int64(len(p))
	q.borrow(p, w.appended)
	w.appended += int64(len(p))
	q.lengths.add(len(p), 1)
	q.refer(p)
	return true
}
