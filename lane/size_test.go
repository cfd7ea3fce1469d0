package lane

import (
	"math/bits"
	"runtime"
	"testing"
	"unsafe"

	"github.com/penstock/penstock/internal/testutil/heap"
)

// TestSessionSize: a session fits a size class of the runtime, 112 bytes.
func TestSessionSize(t *testing.T) {
	if bits.UintSize != 64 {
		t.Skip("the bound is for 64 bits")
	}
	if n := unsafe.Sizeof(Session{}); n > 112 {
		t.Errorf("a Session takes %d bytes, more than 112", n)
	}
}

// TestMillionSessions: a table of a million takes 124 bytes of this process for each: a session, its place in the table, and
// that in the list of free slots. The map of the programs is of the kernel, see [Lane.Memory].
func TestMillionSessions(t *testing.T) {
	n := 1 << 20
	if testing.Short() {
		n = 1 << 14
	}
	before := heap.InUse()
	l := &Lane{sessions: make([]*Session, n), free: make([]uint32, 0, n)}
	for slot := range l.sessions {
		l.sessions[slot] = &Session{lane: l, slot: uint32(slot), phase: away}
	}
	each := (heap.InUse() - before) / n
	t.Logf("%d bytes for each of %d", each, n)
	if each > 125 {
		t.Errorf("%d bytes for each session, want at most 125", each)
	}
	runtime.KeepAlive(l)
}
