package loop_test

import (
	"errors"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/loop"
)

// turn has a loop make one turn that does not block.
func turn(t testing.TB, l *loop.Loop) {
	t.Helper()
	must.Do(t, l.Post(func() {}))
	must.Do(t, l.Turn())
}

// TestPostKeepsOrder: of each goroutine, however many functions wait, also beyond
// what the ring holds.
func TestPostKeepsOrder(t *testing.T) {
	t.Parallel()

	const posters, each = 4, 6000
	l := newLoop(t, nil)
	var last [posters]int
	var wg sync.WaitGroup
	for p := range posters {
		wg.Go(func() {
			for i := range each {
				err := l.Post(func() {
					if last[p] != i {
						t.Errorf("poster %d: %d was called when it was %d's turn", p, i, last[p])
					}
					last[p]++
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 20 { // the ring overflows between them
		turn(t, l)
	}
	stopped := make(chan struct{})
	go func() { wg.Wait(); l.Stop(); close(stopped) }()
	must.Do(t, l.Run())
	<-stopped
	for p, n := range last {
		if n != each {
			t.Errorf("poster %d: %d of %d were called", p, n, each)
		}
	}
}

// TestPostWakes: the loop goes to sleep again and again, and each post finds it
// falling asleep, asleep or awake. A wake-up that was lost would end this test by
// the time limit.
func TestPostWakes(t *testing.T) {
	t.Parallel()

	l := running(t, nil)
	const posters, rounds = 3, 4000
	var wg sync.WaitGroup
	for range posters {
		wg.Go(func() {
			back := make(chan struct{}, 1)
			for i := range rounds {
				if err := l.Post(func() { back <- struct{}{} }); err != nil {
					t.Error(err)
					return
				}
				select {
				case <-back:
				case <-time.After(condition.Patience):
					t.Errorf("post %d was lost", i)
					return
				}
			}
		})
	}
	wg.Wait()
	if l.Stats().Blocked == 0 {
		t.Error("the loop never slept: nothing was tried")
	}
}

// TestPostFromTheLoop: a function posted by the loop is called in the next turn, so
// that one that posts itself again does not keep the others from theirs.
func TestPostFromTheLoop(t *testing.T) {
	t.Parallel()

	l := newLoop(t, nil)
	calls := 0
	var again func()
	again = func() {
		calls++
		_ = l.Post(again)
	}
	again()
	for turn := range 5 {
		must.Do(t, l.Turn())
		if calls != turn+2 {
			t.Fatalf("%d calls after %d turns", calls, turn+1)
		}
	}
}

func TestPostToAClosedLoop(t *testing.T) {
	t.Parallel()

	l := must.Get(loop.New(nil))(t)
	for range 2 {
		must.Do(t, l.Close())
	}
	for range 3000 {
		must.Is(t, l.Post(func() {}), os.ErrClosed)
	}
	must.Is(t, l.Run(), os.ErrClosed)
}

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
		must.Do(t, l.Post(func() {
			if calls != i {
				t.Errorf("%d was called when it was %d's turn", i, calls)
			}
			calls++
		}))
	}
	if !l.Overflowed() {
		t.Fatal("nothing is in the list: nothing is tried")
	}
	must.Do(t, l.Turn())
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
		must.Do(t, l.Turn())
		if l.Stats().Blocked > 0 {
			c.now += 2e6
		}
	}
	if calls != before {
		t.Fatalf("%d of the list were called before their turn", calls-before)
	}
	must.Do(t, finish())
	must.Do(t, l.Turn())
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
		must.Do(t, l.Post(func() {}))
	}
	var calls []string
	finish := l.HoldUpFull(func() { calls = append(calls, "first") })
	must.Do(t, l.Post(func() { calls = append(calls, "second") }))
	must.Do(t, l.Turn()) // it sees the wake-up that went with the list
	if len(calls) > 0 || !l.Overflowed() {
		t.Fatalf("%q were called: nothing is tried", calls)
	}
	finished := errors.New("it was not asked to block")
	looks = func() { looks = func() {}; finished = finish() }
	ended := make(chan error, 1)
	go func() { ended <- l.Turn() }()
	must.Do(t, errors.Join(condition.Receive(t, "the end of the turn", ended), finished))
	if want := []string{"second", "first"}; !slices.Equal(calls, want) {
		t.Errorf("%q were called, want %q", calls, want)
	}
}
