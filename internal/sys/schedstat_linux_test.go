package sys_test

import (
	"errors"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

func TestSchedstat(t *testing.T) {
	runtime.LockOSThread() // and never unlocked: the thread ends with the test
	tid := sys.Gettid()
	waited, slices, err := sys.Schedstat(tid)
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		sys.Nanosleep(int64(time.Millisecond))
	}
	waitedThen, slicesThen, err := sys.Schedstat(tid)
	if err != nil {
		t.Fatal(err)
	}
	if slicesThen < slices+10 || waitedThen < waited {
		t.Errorf("after ten sleeps: waited %d ns, %d slices; before %d ns, %d", waitedThen, slicesThen, waited, slices)
	}
	if _, _, err := sys.Schedstat(1 << 23); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a thread that is not: %v, want ErrNotExist", err)
	}
}
