package condition

import (
	"fmt"
	"testing"
	"time"
)

// failing is a test that may fail.
type failing struct {
	testing.TB
	with string
}

func (*failing) Helper() {}

func (f *failing) Fatalf(format string, args ...any) {
	f.with = fmt.Sprintf(format, args...)
	panic(f)
}

func TestAwait(t *testing.T) {
	looks := 0
	Await(t, "the third look", func() bool { looks++; return looks == 3 })
	if looks != 3 {
		t.Errorf("%d looks, want 3", looks)
	}
}

func TestAwaitGivesUp(t *testing.T) {
	f := &failing{TB: t}
	defer func() {
		if want := "not within 1ms: never"; recover() == nil || f.with != want {
			t.Errorf("it failed with %q, want %q", f.with, want)
		}
	}()
	await(f, "never", func() bool { return false }, time.Millisecond)
}
