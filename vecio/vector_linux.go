package vecio

import (
	"sync"
	"unsafe"

	"github.com/penstock/penstock/internal/sys"
)

// A vector is an array of struct iovec for one call.
type vector struct {
	used  []sys.Iovec // of array, unless that is too short
	array [sys.IOV_MAX]sys.Iovec
}

var vectors = sync.Pool{New: func() any { return new(vector) }}

// leaseVector returns a vector with room for n views. More than IOV_MAX are for the
// kernel to refuse.
func leaseVector(n int) *vector {
	v := vectors.Get().(*vector)
	if v.used = v.array[:0]; n > len(v.array) {
		v.used = make([]sys.Iovec, 0, n)
	}
	return v
}

// fill makes a view of each span, and returns how many bytes they are.
func (v *vector) fill(spans [][]byte) (total int) {
	v.used = v.used[:len(spans)]
	for i, p := range spans {
		view(&v.used[i], p)
		total += len(p)
	}
	return total
}

// giveBack clears the views that were made.
func (v *vector) giveBack() {
	clear(v.used)
	v.used = nil
	vectors.Put(v)
}

// view is where an address and a length are made of a slice: see the three rules in the
// package's documentation. The slice is one of a queue's, which keeps it (1); its length
// is its own (2); the queue gives nothing back before the bytes are counted (3).
func view(to *sys.Iovec, p []byte) {
	to.Base = unsafe.SliceData(p)
	to.SetLen(len(p))
}
