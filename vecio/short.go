package vecio

// Short pieces are most of them, so Append looks at a few words only: whether the piece
// fits into free, which is empty whenever there is something else to think of.
//
// Invariant: free is nil, or begins in the open buffer where its used part ends, and is as
// long as fits into the buffer and below the high mark. Its first filled bytes are those
// of short pieces; they are pending, but no span has them, and appended does not count them
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
