package loop_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/loop"
)

// TestOverruns: a turn that works for two milliseconds is one, one that waits is none, and
// nothing is measured unless that is asked for.
func TestOverruns(t *testing.T) {
	t.Parallel()

	runtime.LockOSThread() // turn is called here, and must not move
	defer runtime.UnlockOSThread()
	work := func() {
		for began := threadTime(t); threadTime(t)-began < 2*time.Millisecond; {
		}
	}
	wait := func() { time.Sleep(2 * time.Millisecond) }
	for _, measured := range []bool{false, true} {
		l := newLoop(t, &loop.Config{TurnCPU: measured})
		for i, f := range []func(){work, wait} {
			if err := l.Post(f); err != nil {
				t.Fatal(err)
			}
			before := l.Stats().Overruns
			turn(t, l)
			if n, want := l.Stats().Overruns-before, int64(1); i > 0 && n != 0 || i == 0 && measured != (n == want) {
				t.Errorf("measured %v, function %d: %d turns have used too much", measured, i, n)
			}
		}
	}
}

func threadTime(t *testing.T) time.Duration {
	t.Helper()
	d, err := sys.ThreadCPUTime()
	if err != nil {
		t.Fatal(err)
	}
	return d
}
