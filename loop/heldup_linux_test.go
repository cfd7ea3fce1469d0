package loop_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/penstock/penstock/loop"
)

// TestPostHeldUp: a poster loses its CPU in the middle of a post, while another one
// fills the table and the list behind it. The loop calls what has its turn, does not
// spin while it waits for the first one, and keeps the order of the second.
func TestPostHeldUp(t *testing.T) {
	t.Parallel()

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

// TestPostGivesUp: a poster that has found no place loses its CPU before it goes for
// the list, in which another one's function is already. The loop, which cannot know
// that the first one is not coming by the ring, leaves that for later, and is about to
// block when the first one goes on. A wake-up that was lost would end this test by the
// time limit.
func TestPostGivesUp(t *testing.T) {
	t.Parallel()

	looks := func() {} // at the clock, which is the last thing before it blocks
	l := newLoop(t, &loop.Config{Now: func() int64 { looks(); return 1 }})
	for range loop.MailboxSize {
		if err := l.Post(func() {}); err != nil {
			t.Fatal(err)
		}
	}
	var calls []string
	finish := l.HoldUpFull(func() { calls = append(calls, "first") })
	if err := l.Post(func() { calls = append(calls, "second") }); err != nil {
		t.Fatal(err)
	}
	if err := l.Turn(); err != nil { // it sees the wake-up that went with the list
		t.Fatal(err)
	}
	if len(calls) > 0 || !l.Overflowed() {
		t.Fatalf("%q were called: nothing is tried", calls)
	}
	finished := errors.New("it was not asked to block")
	looks = func() { looks = func() {}; finished = finish() }
	ended := make(chan error, 1)
	go func() { ended <- l.Turn() }()
	if err := errors.Join(await(t, ended, "the end of the turn"), finished); err != nil {
		t.Fatal(err)
	}
	if want := []string{"second", "first"}; !slices.Equal(calls, want) {
		t.Errorf("%q were called, want %q", calls, want)
	}
}
