package vecio

import (
	"unsafe"

	"github.com/penstock/penstock/internal/sys"
)

// A Script replaces the kernel. It is given the pieces of each call, and answers like a
// system call. It must not keep the pieces.
type Script func(pieces [][]byte) (int, error)

func (s Script) name() string { return "script" }

func (s Script) send(_ int, pieces []sys.Iovec, _ int) (int, error) {
	var seen [][]byte
	for _, v := range pieces {
		seen = append(seen, unsafe.Slice(v.Base, int(v.Len)))
	}
	return s(seen)
}

func (s Script) sendCopy(_ int, p []byte, _ int) (int, error) { return s([][]byte{p}) }

// NewScripted returns a writer on PathSocket, whose kernel is s.
func NewScripted(s Script, cfg *Config) (*Writer, error) {
	w, err := newWriter(cfg)
	if err != nil {
		return nil, err
	}
	w.path, w.out = PathSocket, &borrowed{descriptor: descriptor{kernel: s, stream: true}, fd: -1}
	return w, nil
}

// KeptBy returns the references that an idle pool's array keeps: the number of headers in
// the queue and of views in the vector, up to their capacity, that are not nil.
func KeptBy() (headers, views int) {
	q, v := queues.Get().(*queue), vectors.Get().(*vector)
	defer queues.Put(q)
	defer vectors.Put(v)
	for _, p := range q.spans.items[:cap(q.spans.items)] {
		if p != nil {
			headers++
		}
	}
	for _, o := range q.owners.items[:cap(q.owners.items)] {
		if o.piece != nil || o.r != nil {
			headers++
		}
	}
	for _, i := range v.array {
		if i.Base != nil {
			views++
		}
	}
	return headers, views
}

// ArraysKept returns how long the arrays of an idle pool's queue are.
func ArraysKept() (spans, owners int) {
	q := queues.Get().(*queue)
	defer queues.Put(q)
	return cap(q.spans.items), cap(q.owners.items)
}

// Idle reports whether the writer holds no memory.
func (w *Writer) Idle() bool { return w.q == nil }

// Memory returns how many bytes of buffers and arrays the writer holds.
func (w *Writer) Memory() int {
	if w.q == nil {
		return 0
	}
	n := cap(w.q.spans.items)*24 + cap(w.q.owners.items)*48 + cap(w.q.lengths.runs.items)*16
	for _, o := range w.q.owners.all() {
		if b, ok := o.r.(*buffer); ok {
			n += len(b.data)
		}
	}
	if w.q.open != nil {
		n += len(w.q.open.data)
	}
	return n
}
