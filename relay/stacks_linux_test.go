//go:build amd64 && !race && !invariants

package relay_test

import (
	"net"
	"runtime"
	"runtime/metrics"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/internal/testutil/privilege"
)

// TestIdleStacks: what an idle session keeps of stack is two goroutines of 2 KiB,
// also after it has copied, spliced and leased. Whatever makes the calls between a
// goroutine's start and its wait deeper shows here: stacks double, and the collector
// does not shrink them again. (The race detector's and the invariants' frames are larger, and so may be
// those of other processors.)
//
// It runs in a process of its own, because new goroutines get stacks of the size
// that those of the process have used on average (runtime, gcComputeStartingStackSize).
func TestIdleStacks(t *testing.T) {
	if !privilege.InChild(t) {
		return
	}
	const sessions, descriptors = 500, 4
	var lim syscall.Rlimit
	must.Do(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &lim))
	if lim.Cur < descriptors*sessions+200 {
		t.Skipf("RLIMIT_NOFILE is %d, the test needs %d", lim.Cur, descriptors*sessions+200)
	}
	r := newRelay(t, nil)
	type pair struct{ a, b halfConn }
	pairs := make([]pair, sessions)
	near := make([][2]net.Conn, sessions)
	for i := range pairs {
		pairs[i].a, near[i][0] = tcp(t)
		pairs[i].b, near[i][1] = tcp(t)
	}
	before := stacks()
	ends := make([]<-chan outcome, sessions)
	for i := range pairs {
		ends[i] = start(t, r.NewSession(near[i][0], near[i][1]))
	}
	message := make([]byte, 64<<10)
	for _, p := range pairs {
		for range 3 { // copied at first, spliced then
			pass(t, p.a, p.b, message)
			pass(t, p.b, p.a, message)
		}
	}
	if kept := (stacks() - before) / sessions; kept > 5<<10 {
		t.Errorf("%d bytes of stack for each idle session", kept)
	}
	var spliced, copied int64
	for i, p := range pairs {
		_ = p.a.CloseWrite()
		_ = p.b.CloseWrite()
		o := end(t, ends[i])
		if o.err != nil {
			t.Fatal(o.err)
		}
		spliced += o.result.AToB.Spliced
		copied += o.result.AToB.Copied
	}
	if spliced == 0 || copied == 0 {
		t.Errorf("spliced %d bytes, copied %d: both were to be seen", spliced, copied)
	}
}

// stacks returns the bytes of all stacks, without those of goroutines that have
// ended.
func stacks() int64 {
	runtime.GC() // which gives back the stacks of the dead
	sample := []metrics.Sample{{Name: "/memory/classes/heap/stacks:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}
