package lane_test

import (
	"os"
	"runtime"
	"testing"

	"github.com/penstock/penstock/internal/testutil/heap"
)

// TestIdle: a session in the lane costs this process less than 200 bytes, one descriptor, and no
// goroutine.
func TestIdle(t *testing.T) {
	if !alone(t) {
		return
	}
	l, at := open(t, "lo"), listener(t, "127.0.0.1:0")
	const n = 200
	var pairs []pair
	routines := runtime.NumGoroutine()
	for range n {
		pairs = append(pairs, joinedTo(t, l, at))
	}
	for _, p := range pairs {
		p.talk(t)
	}
	until(t, "all sockets are closed", func() bool { return l.Stats().Left == n && runtime.NumGoroutine() <= routines })
	inLane, descriptors := heap.InUse(), openDescriptors(t)
	for _, p := range pairs {
		p.Reset()
		p.Wait()
	}
	for i := range pairs {
		pairs[i].Session = nil
	}
	until(t, "all slots are free", func() bool { return len(l.Sessions()) == 0 })
	each := (inLane - heap.InUse()) / n
	t.Logf("%d bytes for each session", each)
	if each > 200 {
		t.Errorf("%d bytes for each session, want at most 200", each)
	}
	if held := descriptors - openDescriptors(t); held != n {
		t.Errorf("%d descriptors for %d sessions", held, n)
	}
}

func openDescriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}
