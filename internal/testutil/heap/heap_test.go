package heap_test

import (
	"testing"

	"github.com/penstock/penstock/internal/testutil/heap"
)

var kept []byte

func TestTaken(t *testing.T) {
	most, all := heap.Taken(func() {
		for range 100 {
			kept = make([]byte, 1<<20)
			kept[0] = 1
		}
	})
	if most < 1<<20 || all < 100<<20 || all > 110<<20 || most > all {
		t.Errorf("100 times a MiB takes %d, %d one after the other", most, all)
	}
	before := heap.InUse()
	kept = nil
	// The test's own runtime takes a few objects meanwhile.
	if freed := before - heap.InUse(); freed < 1<<20-64<<10 || freed > 1<<20+64<<10 {
		t.Errorf("what is not kept any more frees %d", freed)
	}
}
