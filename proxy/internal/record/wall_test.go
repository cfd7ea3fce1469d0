package record_test

import (
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/internal/record"
)

// TestWall: the time of day of a time of the clock follows each step of the machine's clock, either way, and is the
// same at each reading otherwise.
func TestWall(t *testing.T) {
	clock, today := int64(1), time.Date(2026, 1, 2, 10, 0, 0, 0, time.UTC)
	took := int64(0) // from a reading of today to the next one of the clock
	w := record.NewWall(func() int64 { return clock }, func() time.Time { clock += took; return today })
	pass := func(d time.Duration) { clock, today = clock+int64(d), today.Add(d) }
	pass(time.Minute)
	at := clock - int64(10*time.Second)
	want := today.Add(-10 * time.Second)
	expect := func(what string) {
		t.Helper()
		if got := w.Of(at); !got.Equal(want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	expect("at first")
	for _, step := range []time.Duration{time.Hour, -2 * time.Hour, 5 * time.Millisecond} {
		today, want = today.Add(step), want.Add(step)
		expect(step.String())
		pass(time.Second)
		expect("later")
	}
	today = today.Add(300 * time.Microsecond)
	expect("read a little late")
	took = int64(time.Second)
	expect("read very late")
}
