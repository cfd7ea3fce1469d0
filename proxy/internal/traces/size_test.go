package traces

import (
	"testing"
	"unsafe"
)

// TestSizeOfSpan: a span that waits is bounded; the documentation of max_queue_size has the
// figure.
func TestSizeOfSpan(t *testing.T) {
	if n := unsafe.Sizeof(span{}); n > 1280 {
		t.Errorf("%d bytes", n)
	} else {
		t.Logf("%d bytes", n)
	}
}
