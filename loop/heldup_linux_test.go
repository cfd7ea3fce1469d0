package loop_test

import (
	"testing"
	"time"

	"github.com/penstock/penstock/loop"
)

// TestPostHeldUp: a poster loses its CPU in the middle of a post, while another one
// fills the table and the list behind it. The loop calls what has its turn, does not
// spin while it waits for the first one, and keeps the order of the second.
func TestPostHeldUp(t *testing.T) {
	c := clock{now: 1}
	l := newLoop(t, &loop.Config{Now: func() int64 { return c.now }})
	calls, late := 0, false
	finish := l.HoldUp(func() { late = true })
	const n = 2 * loop.MailboxSize
	for i := range n {
		err := l.Post(func() {
			if calls != i {
				t.Errorf("%d was called when it was %d's turn", i, calls)
			}
			calls++
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if !l.Overflowed() {
		t.Fatal("nothing is in the list: nothing is tried")
	}
	if err := l.Turn(); err != nil {
		t.Fatal(err)
	}
	if calls == 0 || calls == n || late {
		t.Fatalf("%d of %d were called, want those of the table", calls, n)
	}
	// The next turns sleep: until the wake-up that went with the list has been
	// seen, and then for a timer.
	var timer loop.Timer
	expired := false
	l.Arm(&timer, expirer(func() { expired = true }), time.Millisecond)
	before := calls
	for turns := 0; !expired; turns++ {
		if turns > 5 {
			t.Fatal("it spins")
		}
		if err := l.Turn(); err != nil {
			t.Fatal(err)
		}
		if l.Stats().Blocked > 0 {
			c.now += 2e6
		}
	}
	if calls != before {
		t.Fatalf("%d of the list were called before their turn", calls-before)
	}
	if err := finish(); err != nil {
		t.Fatal(err)
	}
	if err := l.Turn(); err != nil {
		t.Fatal(err)
	}
	if calls != n || !late || l.Overflowed() {
		t.Fatalf("%d of %d were called, the first one: %v", calls, n, late)
	}
}
