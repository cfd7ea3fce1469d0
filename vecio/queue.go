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

// turn replaces the open buffer, which is full at that position. If all pending bytes are in
// a small buffer, they are moved to the larger one: they are few, and then form one span with
// the next bytes.
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

// crowded reports whether so many lengths or owners are pending that no further piece
// should come, even an empty one.
func (q *queue) crowded() bool { return q.lengths.runs.len() >= maxRuns || q.owners.len() >= maxRuns }

// ample reports whether the copied bytes have filled more than a small buffer.
func (q *queue) ample() bool {
	return q.turns > 1 || q.open != nil && q.open.used > sizes[0]
}

// copied reports whether all that is pending is one span of the open buffer.
func (q *queue) copied() bool { return q.tail && q.spans.len() == 1 }

// shut closes the open buffer: it is given back when everything up to its end is written.
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

// A fifo is an array with a taken front. It grows like a slice and, when the
// front is larger than the rest, moves the rest down in place.
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

// A buffer is where small pieces are copied to: data[:used] is taken.
type buffer struct {
	data []byte
	used int
	size uint8 // index of sizes
}

// The sizes of buffers. The first buffer of a writer is small, because most slow peers
// leave little pending, unless this was not enough the last time. The next ones are
// larger. The last size is for Writes of PathCoalesced.
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

// A run is a sequence of pieces with the same length.
type run struct{ size, count int }

// lengths are the lengths of the pending pieces, empty ones too, in order: they map a byte to
// its piece. Most programs write pieces of a few lengths, and counting equal pieces costs less
// than storing each one: BenchmarkWrite at 64 bytes.
type lengths struct {
	runs  fifo[run]
	count int64 // of pieces
	base  int64 // the position where the first begins
}

// add adds pieces of the same length.
func (l *lengths) add(size, count int) {
	l.count += int64(count)
	if last := l.runs.last(); last != nil && last.size == size {
		last.count += count
		return
	}
	l.runs.push(run{size, count})
}

// reached returns how many pieces end at that position or before it, and how far beyond
// the end of the last of these it is.
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

// forget drops runs that are written, once there are many, and returns how many pieces
// that were.
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

// Most pieces are short, so Append only checks whether the piece fits into free. free
// is empty whenever another case has to be considered.
//
// Invariant: free is nil, or begins in the open buffer where its used part ends, and is as
// long as fits into the buffer and below the high mark. Its first filled bytes are from
// short pieces; they are pending, but no span has them, and appended does not count them
// yet. like are the last of these pieces, which the queue does not know of. sync makes a
// span of them; it comes before all that reads the spans, the buffer or the lengths.

// alike adds a short piece that is as long as the one before it, if there is nothing to
// think of.
func (w *Writer) alike(n int) bool {
	// A piece of no bytes is none of these, for there may be no queue.
	if n != w.like.size || uint(n-1) >= uint(len(w.free)-w.filled) {
		return false
	}
	w.like.count++
	return true
}

// short is alike for a short piece of any length.
func (w *Writer) short(n int) bool {
	if n >= w.config.CopyBelow || uint(n-1) >= uint(len(w.free)-w.filled) || w.q.lengths.runs.len() >= maxRuns {
		return false
	}
	w.noteLike()
	w.like = run{n, 1}
	return true
}

// noteLike adds the short pieces that the queue does not know to it.
func (w *Writer) noteLike() {
	if w.like.count > 0 {
		w.q.lengths.add(w.like.size, w.like.count)
	}
	w.like = run{}
}

// offer makes room for short pieces, after others were added.
func (w *Writer) offer() {
	if w.q == nil || w.q.open == nil || w.config.Bound > 0 {
		return
	}
	b := w.q.open
	room := max(w.config.High-w.Pending(), 0)
	w.free, w.filled = b.data[b.used:b.used+min(room, len(b.data)-b.used)], 0
}

// sync makes a span of the short pieces that were added to free.
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

// long adds a piece by reference if there is nothing to think of.
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
