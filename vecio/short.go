package vecio

// Short pieces are most of them, so Append looks at a few words only: whether the piece
// fits into free, which is empty whenever there is something else to think of.
//
// Invariant: free is nil, or begins in the open buffer where its used part ends, and is as
// long as fits into the buffer and below the high mark. Its first filled bytes are those
// of short pieces; they are pending, but no span has them yet. sync makes a span of them;
// it comes before all that reads the spans or the buffer.

// short adds a piece if it is one of the short ones, and there is nothing to think of.
func (w *Writer) short(n int) bool {
	// A piece of no bytes is none of these, for there may be no queue.
	if n >= w.config.CopyBelow || uint(n-1) >= uint(len(w.free)-w.filled) {
		return false
	}
	e := &w.q.ends
	if len(e.items) == cap(e.items) {
		return false
	}
	w.appended += int64(n)
	e.items = append(e.items, w.appended)
	return true
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
	}
	w.free, w.filled = nil, 0
}

// long adds a piece by reference if there is nothing to think of.
func (w *Writer) long(p []byte) bool {
	q := w.q
	if q == nil || w.free != nil || w.full || len(p) == 0 || w.config.Bound > 0 || w.Pending()+len(p) > w.config.High {
		return false
	}
	if len(q.ends.items) == cap(q.ends.items) || len(q.spans.items) == cap(q.spans.items) {
		return false
	}
	w.stats.Refs++
	w.stats.RefBytes += int64(len(p))
	w.appended += int64(len(p))
	q.ends.items = append(q.ends.items, w.appended)
	q.refer(p)
	return true
}
