package health_test

import (
	"sync/atomic"
	"testing"

	"github.com/penstock/penstock/proxy/internal/health"
)

// TestPanicIsToldOnce: of several goroutines that notice it at once only one reports it, by
// the present state and not by an earlier one.
func TestPanicIsToldOnce(t *testing.T) {
	k, _ := idle(0)
	p := health.NewPanic(k, "upstream u")
	var usable atomic.Int64
	see := func() (bool, int, int) { n := int(usable.Load()); return n < 2, n, 3 }
	look := func() {
		panicking, _, _ := see()
		p.Look(panicking, see)
	}
	for round := range 100 {
		usable.Store(1)
		together(4, func(int) { look() })
		p.Look(false, see) // by a goroutine that had looked before
		usable.Store(3)
		together(4, func(int) { look() })
		told := k.Told()
		if len(told) != 2 || p.Begun() != int64(round+1) {
			t.Fatalf("round %d: reported %+v, begun %d times", round, told, p.Begun())
		}
		for i, want := range []health.Transition{
			{State: "panic", Bad: true, Cause: "1 of 3 endpoints are usable"}, {State: "calm", Cause: "3 of 3 endpoints are usable"},
		} {
			want.Subject, want.Kind, want.Time = "upstream u", health.Panicking, told[i].Time
			if told[i] != want {
				t.Errorf("reported %+v, want %+v", told[i], want)
			}
		}
	}
}
