package vecio

import (
	"testing"

	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/internal/testutil/sockets"
)

// TestSegmentsAreReadAnew: a path may change, and with it the size of segments. The size
// is read once a second.
func TestSegmentsAreReadAnew(t *testing.T) {
	client, _ := sockets.TCPPair(t)
	w := must.Get(NewSocket(sockets.FD(t, client), &Config{Policy: Adaptive}))(t)
	size := w.segmentSize(1)
	if size < 500 {
		t.Fatalf("segments of %d bytes", size)
	}
	w.pace.segment = 7 // the size before the path changed
	if n := w.segmentSize(1 + segmentAge); n != 7 {
		t.Errorf("after a second: %d, want the known size", n)
	}
	if n := w.segmentSize(2 + segmentAge); n != size {
		t.Errorf("after more than a second: %d, want %d", n, size)
	}
}
