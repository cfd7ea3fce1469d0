package worker_test

import (
	"sync"
	"sync/atomic"
	"testing"
)

// A summary may be requested while the group is closed, and after that.
func TestSummaryAtTheEnd(t *testing.T) {
	t.Parallel()

	for range 5 {
		t.Run("", func(t *testing.T) {
			var over atomic.Bool
			var asking sync.WaitGroup
			t.Cleanup(func() { // after the group was closed
				over.Store(true)
				asking.Wait()
			})
			r := newRig(t, nil)
			r.serve(t)
			asking.Go(func() {
				for !over.Load() {
					if sum := r.Summary(); len(sum.Loops) != 2 {
						t.Errorf("a summary of %d loops", len(sum.Loops))
					}
				}
			})
			talk(t, r.dial(t))
		})
	}
}
