package sys_test

import (
	"errors"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// burn uses at least d of this process's own processor time.
func burn(t *testing.T, d time.Duration) {
	t.Helper()
	used := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			t.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	for start := used(); used()-start < d; {
	}
}

func TestProcessCPUTimeCountsWhatTheProcessUsed(t *testing.T) {
	before, err := sys.ProcessCPUTime(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	const used = 30 * time.Millisecond
	burn(t, used)
	after, err := sys.ProcessCPUTime(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	// Getrusage may round what it reports by a tick.
	if got := after - before; got < used-10*time.Millisecond {
		t.Errorf("used %v or more, the clock says %v", used, got)
	}
}

func TestProcessCPUTimeOfNobody(t *testing.T) {
	if _, err := sys.ProcessCPUTime(1<<22 + 1); !errors.Is(err, syscall.EINVAL) { // above PID_MAX_LIMIT
		t.Errorf("got %v, want EINVAL", err)
	}
}
