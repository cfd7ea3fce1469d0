package sys_test

import (
	"errors"
	"runtime"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/sys"
)

func TestChangeSchedPolicy(t *testing.T) {
	runtime.LockOSThread() // and never unlocked: the thread ends with the test
	tid := sys.Gettid()
	if err := sys.ChangeSchedPolicy(tid, sys.SCHED_BATCH, sys.SCHED_OTHER); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a policy that it does not have: %v, want EINVAL", err)
	}
	for _, step := range [][2]int{{sys.SCHED_OTHER, sys.SCHED_BATCH}, {sys.SCHED_BATCH, sys.SCHED_OTHER}} {
		if err := sys.ChangeSchedPolicy(tid, step[0], step[1]); err != nil {
			t.Fatal(err)
		}
		if got, err := sys.SchedPolicy(0); got != step[1] || err != nil {
			t.Errorf("policy %d, %v, want %d", got, err, step[1])
		}
	}
	if err := sys.ChangeSchedPolicy(1<<22+1, sys.SCHED_OTHER, sys.SCHED_BATCH); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("a thread that is not: %v, want ESRCH", err)
	}
}
