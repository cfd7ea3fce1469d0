package sys_test

import (
	"testing"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

func TestNanosleep(t *testing.T) {
	const d = 2 * time.Millisecond
	for range 5 { // a signal of the runtime ends one early
		begin := time.Now()
		sys.Nanosleep(int64(d))
		if time.Since(begin) >= d {
			return
		}
	}
	t.Error("it never slept for as long as it was to")
}
