package lane

import (
	"math/bits"
	"runtime"
	"testing"
	"unsafe"

	"github.com/penstock/penstock/internal/testutil/heap"
)

// TestSessionSize: a session fits a size class of the runtime, 80 bytes; one of Join has another of 32.
func TestSessionSize(t *testing.T) {
	if bits.UintSize != 64 {
		t.Skip("the bound is for 64 bits")
	}
	if n := unsafe.Sizeof(Session{}); n > 80 {
		t.Errorf("a Session takes %d bytes, more than 80", n)
	}
	if n := unsafe.Sizeof(further{}); n > 32 {
		t.Errorf("a further takes %d bytes, more than 32", n)
	}
}

// TestMillionSessions: a table of a million takes 92 bytes of this process for each: a session, its place in the table, and
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
	if each > 93 {
		t.Errorf("%d bytes for each session, want at most 93", each)
	}
	runtime.KeepAlive(l)
}
