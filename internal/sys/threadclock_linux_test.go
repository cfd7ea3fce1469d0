package sys_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// TestThreadCPUTime: it goes on while the thread works, and by no more than the time.
func TestThreadCPUTime(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	wall := time.Now()
	begin, err := sys.ThreadCPUTime()
	want(t, "clock_gettime", begin > 0, err, true, nil)
	for now := begin; now < begin+time.Millisecond; {
		now, err = sys.ThreadCPUTime()
		want(t, "clock_gettime", now >= begin, err, true, nil)
		if now-begin > time.Since(wall) {
			t.Fatalf("%v of CPU time in %v", now-begin, time.Since(wall))
		}
	}
}
