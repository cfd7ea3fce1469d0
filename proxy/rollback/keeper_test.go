package rollback_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock/proxy/rollback"
)

// A rig is a keeper of words that records its reports and applied states. Its tests run in
// bubbles of synctest, which have a clock of their own.
type rig struct {
	*rollback.Keeper[string]
	failures atomic.Int64

	mu      sync.Mutex
	applied []string
	told    []rollback.Change
	fail    error // the error of applying
}

// bubble runs a test with a rig, and with a clock of its own.
func bubble(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newRig(t)) })
}

// pass lets a time pass, and all that is due be done.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func newRig(t *testing.T) *rig {
	r := &rig{applied: []string{"one"}}
	r.Keeper = rollback.New("one", rollback.Config[string]{
		Apply: r.apply,
		Changes: func(from, to string) []string {
			if from == to {
				return nil
			}
			return []string{from + " → " + to}
		},
		Counter: func(name string) (int64, bool) {
			return r.failures.Load(), name == "failures"
		},
		Counters: func() []string { return []string{"failures", "refused"} },
		Report: func(c rollback.Change) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.told = append(r.told, c)
		},
	})
	t.Cleanup(r.Close)
	return r
}

func (r *rig) apply(_ context.Context, next string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fail == nil {
		r.applied = append(r.applied, next)
	}
	return r.fail
}

func (r *rig) failWith(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fail = err
}

// change applies a state, which must succeed.
func (r *rig) change(t *testing.T, next string, o rollback.Options) {
	t.Helper()
	if _, err := r.Apply(t.Context(), next, o); err != nil {
		t.Fatal(err)
	}
}

// back returns to a generation by hand, which must succeed.
func (r *rig) back(t *testing.T, number int, by string, generation int) {
	t.Helper()
	if done, err := r.Rollback(t.Context(), number, by); err != nil || done.Generation != generation {
		t.Fatalf("to %d: %+v, %v", number, done, err)
	}
}

// holds checks the generation and state in force, and the states applied so far.
func (r *rig) holds(t *testing.T, number int, applied ...string) {
	t.Helper()
	state, n := r.Current()
	r.mu.Lock()
	defer r.mu.Unlock()
	if n != number || state != applied[len(applied)-1] || !slices.Equal(r.applied, applied) {
		t.Errorf("generation %d, %q, is in force after %q, want %d after %q", n, state, r.applied, number, applied)
	}
}

func (r *rig) reported(t *testing.T, want ...rollback.Event) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.EqualFunc(r.told, want, func(c rollback.Change, e rollback.Event) bool { return c.Event == e }) {
		t.Errorf("reported %+v, want %q", r.told, want)
	}
}

// states lists the states of the history, newest first.
func (r *rig) states() (list []rollback.State) {
	for _, record := range r.Status().History {
		list = append(list, record.State)
	}
	return list
}

var twoMinutes = rollback.Options{Confirm: 2 * time.Minute, RollbackIf: "failures>50", By: "test"}

func TestChangeWithoutConditionsStays(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.change(t, "two", rollback.Options{By: "test"})
		time.Sleep(time.Hour)
		r.holds(t, 2, "one", "two")
		s := r.Status()
		if s.Current != 2 || s.Previous != 1 || s.Pending != nil || s.History[0].By != "test" {
			t.Errorf("%+v", s)
		}
		if got, want := r.states(), []rollback.State{rollback.Current, rollback.Previous}; !slices.Equal(got, want) {
			t.Errorf("states are %q, want %q", got, want)
		}
	})
}

func TestNobodyConfirms(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.change(t, "two", twoMinutes)
		pass(2*time.Minute - time.Nanosecond)
		r.holds(t, 2, "one", "two")
		if p := r.Status().Pending; p == nil || p.Generation != 2 || p.RollbackIf != "failures>50" || time.Until(p.Until) != time.Nanosecond {
			t.Errorf("pending is %+v", p)
		}
		pass(time.Nanosecond)
		r.holds(t, 1, "one", "two", "one")
		s := r.Status()
		if s.Pending != nil || s.Previous != 0 || s.History[0].State != rollback.RolledBack || s.History[0].Why != "it was not confirmed within 2m0s" {
			t.Errorf("%+v", s)
		}
		r.reported(t, rollback.Applied, rollback.TakenBack)
		// The generation numbers continue.
		r.change(t, "three", rollback.Options{})
		r.holds(t, 3, "one", "two", "one", "three")
	})
}

func TestConfirmedChangeStays(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.change(t, "two", twoMinutes)
		time.Sleep(time.Minute)
		r.failures.Add(50) // the bound allows 50
		if n, err := r.Confirm(t.Context(), 0, "test"); n != 2 || err != nil {
			t.Fatal(n, err)
		}
		r.failures.Add(50)
		time.Sleep(time.Hour)
		r.holds(t, 2, "one", "two")
		if _, err := r.Confirm(t.Context(), 0, "test"); !errors.Is(err, rollback.ErrNothing) {
			t.Errorf("a second confirmation: %v", err)
		}
	})
}

// TestBoundIsPassed: within the window the rollback comes as soon as the excess is seen, not at
// the end. Counts from before the change do not matter.
func TestBoundIsPassed(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.failures.Store(1000)
		r.change(t, "two", twoMinutes)
		r.failures.Add(50)
		pass(time.Minute)
		r.holds(t, 2, "one", "two")
		if p := r.Status().Pending; p == nil || p.Increase != 50 {
			t.Errorf("pending is %+v", p)
		}
		r.failures.Add(1)
		pass(250 * time.Millisecond)
		r.holds(t, 1, "one", "two", "one")
		if why := r.Status().History[0].Why; why != "failures rose by 51, the bound is failures>50" {
			t.Errorf("why is %q", why)
		}
		if _, err := r.Confirm(t.Context(), 0, "test"); !errors.Is(err, rollback.ErrNothing) || !strings.Contains(err.Error(), "2 was rolled back: failures rose by 51") {
			t.Errorf("confirming it: %v", err)
		}
	})
}

// TestFailuresOfTheSwapCount: the counter is read before the change is made.
func TestFailuresOfTheSwapCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var failures atomic.Int64
		k := rollback.New(0, rollback.Config[int]{
			Changes: func(int, int) []string { return []string{"number"} },
			Apply:   func(_ context.Context, next int) error { failures.Add(int64(next)); return nil },
			Counter: func(string) (int64, bool) { return failures.Load(), true },
		})
		defer k.Close()
		if _, err := k.Apply(t.Context(), 51, twoMinutes); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		if _, n := k.Current(); n != 1 {
			t.Errorf("generation %d is in force", n)
		}
	})
}

// TestWordsOfConfirmations: an error says which generation waits, is in force, or was rolled back by whom.
// TestCounterThatHangs: a change that stops what a counter counts is rolled back in time, by hand or automatically.
func TestCounterThatHangs(t *testing.T) {
	for name, byHand := range map[string]bool{"by hand": true, "automatically": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var hangs atomic.Bool
				answer := make(chan struct{})
				k := rollback.New(0, rollback.Config[int]{
					Changes: func(int, int) []string { return []string{"number"} },
					Apply:   func(context.Context, int) error { return nil },
					Counter: func(string) (int64, bool) {
						if hangs.Load() {
							<-answer
						}
						return 0, true
					},
				})
				if _, err := k.Apply(t.Context(), 51, twoMinutes); err != nil {
					t.Fatal(err)
				}
				hangs.Store(true)
				began := time.Now()
				if byHand {
					if _, err := k.Rollback(t.Context(), 0, "test"); err != nil {
						t.Error(err)
					}
				} else {
					pass(2 * time.Minute)
				}
				if n := k.Status().Current; n != 1 || time.Since(began) > 2*time.Minute {
					t.Errorf("generation %d is in force after %v", n, time.Since(began))
				}
				close(answer)
				k.Close()
			})
		})
	}
}

func TestWordsOfConfirmations(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		confirm := func(number int, wraps error, want string) {
			t.Helper()
			if _, err := r.Confirm(t.Context(), number, "test"); !errors.Is(err, wraps) || err.Error() != want {
				t.Errorf("%d: %v, want %s", number, err, want)
			}
		}
		r.change(t, "two", rollback.Options{})
		r.change(t, "three", twoMinutes)
		confirm(999, rollback.ErrNothing, "nothing to confirm as generation 999: the last generation is 3, which waits to be confirmed")
		confirm(2, rollback.ErrLate, "too late to confirm generation 2: generation 3 waits to be confirmed")
		r.back(t, 0, "uid=7", 2)
		confirm(0, rollback.ErrNothing, "nothing waits to be confirmed: generation 2 is in force, and generation 3 was rolled back: asked for by uid=7")
	})
}

// TestSinceWhenAGenerationIsInForce: a rollback begins the time of the generation anew; its record has the first time.
func TestSinceWhenAGenerationIsInForce(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		began := time.Now()
		since := func(want time.Time) {
			t.Helper()
			if got := r.Status().Since; !got.Equal(want) {
				t.Errorf("since %v, want %v", got, want)
			}
		}
		since(began)
		time.Sleep(time.Hour)
		r.change(t, "two", rollback.Options{})
		since(began.Add(time.Hour))
		time.Sleep(time.Hour)
		r.back(t, 0, "test", 1)
		since(began.Add(2 * time.Hour))
		if h := r.Status().History; !h[len(h)-1].At.Equal(began) {
			t.Errorf("the first generation is of %v, want %v", h[len(h)-1].At, began)
		}
	})
}

// TestConfirmationComesTooLate: the confirmation comes after the bound is passed and before the
// counter is read.
func TestConfirmationComesTooLate(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.change(t, "two", twoMinutes)
		r.failures.Add(51)
		n, err := r.Confirm(t.Context(), 0, "test")
		if n != 1 || !errors.Is(err, rollback.ErrLate) || !strings.Contains(err.Error(), "too late, it was rolled back: failures rose by 51") {
			t.Errorf("generation %d: %v", n, err)
		}
		r.holds(t, 1, "one", "two", "one")
	})
}

func TestSecondChangeIsRefusedMeanwhile(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.change(t, "two", twoMinutes)
		time.Sleep(30 * time.Second)
		_, err := r.Apply(t.Context(), "three", rollback.Options{})
		if !errors.Is(err, rollback.ErrPending) || !strings.Contains(err.Error(), "generation 2 waits to be confirmed, or will be rolled back at "+r.Status().Pending.Until.Format(time.TimeOnly)+": run penstock confirm or ") {
			t.Error(err)
		}
		r.holds(t, 2, "one", "two")
		if _, err := r.Confirm(t.Context(), 0, "test"); err != nil {
			t.Fatal(err)
		}
		r.change(t, "three", rollback.Options{})
		r.holds(t, 3, "one", "two", "three")
	})
}

func TestRollbackByHand(t *testing.T) {
	for name, o := range map[string]rollback.Options{"pending": twoMinutes, "settled": {}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig) {
				if _, err := r.Rollback(t.Context(), 0, "test"); !errors.Is(err, rollback.ErrNothing) {
					t.Errorf("a rollback without a change: %v", err)
				}
				r.change(t, "two", o)
				r.back(t, 0, "test", 1)
				if why := r.Status().History[0].Why; why != "asked for by test" {
					t.Errorf("why is %q", why)
				}
				if _, err := r.Rollback(t.Context(), 0, "test"); !errors.Is(err, rollback.ErrNothing) {
					t.Errorf("again: %v", err)
				}
				time.Sleep(time.Hour)
				r.holds(t, 1, "one", "two", "one")
			})
		})
	}
}

// TestRollbackGoesNoGenerationTooFar: who types a rollback as the last generation is rolled back, by itself or by
// somebody else, means that generation. Further back takes a number.
func TestRollbackGoesNoGenerationTooFar(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		refused := func(want string) {
			t.Helper()
			before := r.Status()
			done, err := r.Rollback(t.Context(), 0, "test")
			if !errors.Is(err, rollback.ErrNothing) || err.Error() != "nothing to return to: "+want {
				t.Errorf("%v, want %s", err, want)
			}
			if after := r.Status(); done.Generation != before.Current || after.Current != before.Current || !after.Since.Equal(before.Since) {
				t.Errorf("%+v: %+v, it was %+v", done, after, before)
			}
		}
		if _, err := r.Rollback(t.Context(), 0, "test"); !errors.Is(err, rollback.ErrNothing) || err.Error() != "nothing older to return to: generation 1 is the first" {
			t.Error(err)
		}
		r.change(t, "two", rollback.Options{})
		r.change(t, "three", twoMinutes)
		r.failures.Add(51)
		pass(time.Second)
		r.holds(t, 2, "one", "two", "three", "two")
		at := r.Status().Since.Format(time.DateTime)
		time.Sleep(time.Hour)
		refused("generation 3 was already rolled back at " + at + " (failures rose by 51, the bound is failures>50), and generation 2 is in force: to go further back, run penstock rollback --to 1")
		r.change(t, "four", rollback.Options{})
		r.back(t, 0, "uid=7", 2)
		at = r.Status().Since.Format(time.DateTime)
		time.Sleep(time.Hour)
		refused("generation 4 was already rolled back at " + at + " (asked for by uid=7), and generation 2 is in force: to go further back, run penstock rollback --to 1")
		r.back(t, 1, "test", 1)
		refused("generation 4 was already rolled back at " + at + " (asked for by uid=7), and generation 1 is in force")
	})
}

// TestFailedChangeChangesNothing: neither the state in force nor the history changes.
func TestFailedChangeChangesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.change(t, "two", rollback.Options{})
		bad := errors.New("bad")
		r.failWith(bad)
		if _, err := r.Apply(t.Context(), "three", twoMinutes); !errors.Is(err, bad) {
			t.Error(err)
		}
		if _, err := r.Rollback(t.Context(), 0, "test"); !errors.Is(err, bad) {
			t.Errorf("a rollback that fails: %v", err)
		}
		r.failWith(nil)
		time.Sleep(time.Hour)
		r.holds(t, 2, "one", "two")
		if s := r.Status(); s.Previous != 1 || s.Pending != nil || len(s.History) != 2 {
			t.Errorf("%+v", s)
		}
	})
}

// TestRollbackThatFailsIsTriedAgain: a port that was taken for a moment must not leave a remote
// machine with a change that its operator did not confirm.
func TestRollbackThatFailsIsTriedAgain(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.change(t, "two", twoMinutes)
		r.failWith(errors.New("bad"))
		if _, err := r.Rollback(t.Context(), 0, "test"); err == nil || r.Status().Pending.Failed != "" {
			t.Errorf("before its time: %v, %+v", err, r.Status().Pending)
		}
		pass(2*time.Minute + time.Second)
		r.holds(t, 2, "one", "two")
		if s := r.Status(); s.Pending == nil || !strings.Contains(s.Pending.Failed, "bad") || !strings.Contains(s.History[0].Why, "bad") {
			t.Errorf("%+v", s)
		}
		r.failWith(nil)
		pass(5 * time.Second)
		r.holds(t, 1, "one", "two", "one")
		r.reported(t, rollback.Applied, rollback.RollbackFailed, rollback.RollbackFailed, rollback.TakenBack)
	})
}

// TestConfirmedAfterFailedRollback: a change that cannot be rolled back may be confirmed, and
// stays.
func TestConfirmedAfterFailedRollback(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.change(t, "two", twoMinutes)
		r.failWith(errors.New("bad"))
		time.Sleep(3 * time.Minute)
		if n, err := r.Confirm(t.Context(), 0, "test"); n != 2 || err != nil {
			t.Fatal(n, err)
		}
		r.failWith(nil)
		time.Sleep(time.Hour)
		r.holds(t, 2, "one", "two")
	})
}

func TestOptionsThatCannotBeMeant(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		for want, o := range map[string]rollback.Options{
			"confirm -1s: write a time":  {Confirm: -time.Second},
			"confirm 1ns: write a time":  {Confirm: 1},
			"confirm 999ms: write":       {Confirm: 999 * time.Millisecond},
			"from 1s to 24h, such as":    {Confirm: 48 * time.Hour},
			"rollback-if needs confirm":  {RollbackIf: "failures>1"},
			"there is no '>'":            {Confirm: time.Minute, RollbackIf: "failures"},
			`there is no counter "tears`: {Confirm: time.Minute, RollbackIf: "tears>1"},
			"one of failures, refused":   {Confirm: time.Minute, RollbackIf: "tears>1"},
		} {
			if _, err := r.Apply(t.Context(), "two", o); !errors.Is(err, rollback.ErrOptions) || !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: %v, want %q", o, err, want)
			}
		}
		r.holds(t, 1, "one")
	})
}

// TestUnchangedStateIsNoGeneration: a reload of the same file keeps the way back.
func TestUnchangedStateIsNoGeneration(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.change(t, "two", rollback.Options{})
		for range 20 {
			done, err := r.Apply(t.Context(), "two", twoMinutes)
			if err != nil || done.Generation != 2 || len(done.Changes) != 0 || done.Pending != nil {
				t.Fatalf("%+v, %v", done, err)
			}
		}
		if s := r.Status(); s.Current != 2 || s.Previous != 1 || len(s.History) != 2 || s.Pending != nil {
			t.Errorf("%+v", s)
		}
		done, err := r.Rollback(t.Context(), 0, "test")
		if err != nil || done.Generation != 1 || !slices.Equal(done.Changes, []string{"two → one"}) {
			t.Errorf("%+v, %v", done, err)
		}
		if state, _ := r.Current(); state != "one" {
			t.Errorf("%q is in force", state)
		}
	})
}

// TestRollbackToANumber: each kept generation can be returned to, one that was taken back as well, and the next
// change has the generation that it replaced before it.
func TestRollbackToANumber(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		for _, next := range []string{"two", "three", "four"} {
			r.change(t, next, rollback.Options{})
		}
		for _, to := range []struct {
			number, generation, previous int
			state                        string
			states                       []rollback.State // newest first
		}{
			{2, 2, 1, "two", []rollback.State{rollback.RolledBack, rollback.RolledBack, rollback.Current, rollback.Previous}},
			{4, 4, 3, "four", []rollback.State{rollback.Current, rollback.Previous, rollback.RolledBack, rollback.Replaced}},
			{1, 1, 0, "one", []rollback.State{rollback.RolledBack, rollback.RolledBack, rollback.RolledBack, rollback.Current}},
		} {
			r.back(t, to.number, "test", to.generation)
			if state, _ := r.Current(); state != to.state || r.Status().Previous != to.previous || !slices.Equal(r.states(), to.states) {
				t.Errorf("to %d: %q is in force, and the states are %q; %+v", to.number, state, r.states(), r.Status())
			}
		}
		for number, want := range map[int]string{1: "generation 1 is in force", 7: "generation 7 is not kept: the kept generations are 1, 2, 3, 4"} {
			if _, err := r.Rollback(t.Context(), number, "test"); !errors.Is(err, rollback.ErrNothing) || !strings.Contains(err.Error(), want) {
				t.Errorf("to %d: %v", number, err)
			}
		}
		r.change(t, "five", rollback.Options{})
		r.back(t, 0, "test", 1)
	})
}

// TestRefusedChangesEvictNoOther: generations that were taken back make room first.
func TestRefusedChangesEvictNoOther(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.change(t, "two", rollback.Options{})
		for i := range 30 {
			r.change(t, strconv.Itoa(i), twoMinutes)
			pass(3 * time.Minute)
		}
		if s := r.Status(); s.Current != 2 || s.Previous != 1 || len(s.History) != rollback.Kept {
			t.Errorf("%+v", s)
		}
	})
}

// TestChangesOfAGeneration: a generation has the lines of its changes, and a great many are counted.
func TestChangesOfAGeneration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := rollback.New(0, rollback.Config[int]{
			Apply:   func(context.Context, int) error { return nil },
			Changes: func(_, n int) []string { return make([]string, n) },
		})
		t.Cleanup(k.Close)
		for _, n := range []int{40, 42} {
			if done, err := k.Apply(t.Context(), n, rollback.Options{}); err != nil || len(done.Changes) != n {
				t.Fatal(done, err)
			}
		}
		h := k.Status().History
		if len(h[0].Changes) != 41 || h[0].Changes[40] != "... and 2 more" || len(h[1].Changes) != 40 || h[2].Changes == nil {
			t.Errorf("%+v", h)
		}
	})
}

func TestHistoryIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		for i := range 1000 {
			r.change(t, strconv.Itoa(i), rollback.Options{})
		}
		s := r.Status()
		if s.Current != 1001 || s.Previous != 1000 || len(s.History) != rollback.Kept || s.History[0].Generation != 1001 || s.History[9].Generation != 992 {
			t.Errorf("%+v", s)
		}
	})
}

// TestCloseLeavesWhatWaits: after Close no timer changes the state, and no further change is
// accepted.
func TestCloseLeavesWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := rollback.New("one", rollback.Config[string]{Apply: func(context.Context, string) error { return nil }, Changes: func(_, to string) []string { return []string{to} }})
		if _, err := k.Apply(t.Context(), "two", rollback.Options{Confirm: time.Minute}); err != nil {
			t.Fatal(err)
		}
		k.Close()
		time.Sleep(time.Hour)
		_, applyErr := k.Apply(t.Context(), "three", rollback.Options{})
		_, confirmErr := k.Confirm(t.Context(), 0, "test")
		_, rollbackErr := k.Rollback(t.Context(), 0, "test")
		for _, err := range []error{applyErr, confirmErr, rollbackErr} {
			if !errors.Is(err, rollback.ErrClosed) {
				t.Errorf("after Close: %v", err)
			}
		}
		if state, n := k.Current(); state != "two" || n != 2 {
			t.Errorf("%q, %d is in force", state, n)
		}
		if s := k.Status(); s.Pending != nil || s.History[0].State != rollback.Current || !strings.Contains(s.History[0].Why, "not confirmed") {
			t.Errorf("after Close: pending %+v, %+v", s.Pending, s.History[0])
		}
	})
}

// TestImpatience: a request that does not want to wait for the change before gets an error. A
// change that has begun continues without its requester.
func TestImpatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, end := make(chan struct{}), make(chan struct{})
		k := rollback.New(1, rollback.Config[int]{Changes: func(_, _ int) []string { return []string{"number"} }, Apply: func(ctx context.Context, _ int) error {
			close(begun)
			<-end
			return ctx.Err()
		}})
		defer k.Close()
		asking, leave := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			_, err := k.Apply(asking, 2, rollback.Options{})
			done <- err
		}()
		<-begun
		waiting, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if _, err := k.Apply(waiting, 3, rollback.Options{}); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "under way") {
			t.Errorf("the waiting request gets: %v", err)
		}
		if s := k.Status(); s.Current != 1 {
			t.Errorf("%+v", s)
		}
		leave()
		close(end)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestRaces: whatever requests coincide, the state in force is the one applied last, and the
// history agrees.
func TestRaces(t *testing.T) {
	for range 20 {
		bubble(t, func(t *testing.T, r *rig) {
			var all sync.WaitGroup
			for i := range 4 {
				all.Go(func() {
					for range 50 {
						switch i {
						case 0:
							r.Apply(t.Context(), "next", rollback.Options{Confirm: rollback.MinConfirm, RollbackIf: "failures>3"})
						case 1:
							r.Confirm(t.Context(), 0, "test")
						case 2:
							r.Rollback(t.Context(), 0, "test")
						default:
							r.failures.Add(1)
							r.Status()
						}
						time.Sleep(time.Duration(1+i) * rollback.MinConfirm / 10)
					}
				})
			}
			all.Wait()
			pass(time.Minute)
			state, n := r.Current()
			s := r.Status()
			if s.Current != n || s.Pending != nil {
				t.Errorf("%+v, and %d is in force", s, n)
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			if last := r.applied[len(r.applied)-1]; last != state {
				t.Errorf("%q is in force, %q was applied last", state, last)
			}
			for _, record := range s.History {
				if (record.State == rollback.Current) != (record.Generation == n) {
					t.Errorf("%+v, and %d is in force", record, n)
				}
			}
		})
	}
}

func TestParseBound(t *testing.T) {
	for text, want := range map[string]rollback.Bound{
		"failures>50":       {Counter: "failures", Most: 50},
		" failures > 50 ":   {Counter: "failures", Most: 50},
		"connect_failed>=1": {Counter: "connect_failed", Most: 0},
		"refused >= 10":     {Counter: "refused", Most: 9},
		"http2_errors>0":    {Counter: "http2_errors", Most: 0},
	} {
		got, err := rollback.ParseBound(text)
		if err != nil || got != want {
			t.Errorf("%q is %+v, %v, want %+v", text, got, err, want)
		}
		if again, err := rollback.ParseBound(got.String()); err != nil || again != got {
			t.Errorf("%q is written %q, which is %+v, %v", text, got, again, err)
		}
	}
	for text, want := range map[string]string{
		"":               "there is no '>'",
		"failures":       "there is no '>'",
		"failures<5":     "there is no '>'",
		">5":             "the name of a counter is missing",
		"fail ures>5":    `"fail ures" is not the name`,
		"Failures>5":     `"Failures" is not the name`,
		"failures>":      "the number is missing",
		"failures>=":     "the number is missing",
		"failures>many":  `"many" is not a whole number`,
		"failures>5%":    `"5%" is not a whole number`,
		"failures>1.5":   `"1.5" is not a whole number`,
		"failures>>5":    `">5" is not a whole number`,
		"failures>-1":    "the condition is always true",
		"failures>=0":    "the condition is always true",
		"failures>9e999": `"9e999" is not a whole number`,
	} {
		_, err := rollback.ParseBound(text)
		if !errors.Is(err, rollback.ErrOptions) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "write a counter") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func FuzzParseBound(f *testing.F) {
	f.Add("failures>50")
	f.Add("a >= 1")
	f.Fuzz(func(t *testing.T, text string) {
		b, err := rollback.ParseBound(text)
		if err != nil {
			return
		}
		if again, err := rollback.ParseBound(b.String()); err != nil || again != b || b.Most < 0 {
			t.Errorf("%q is %+v, written %q, which is %+v, %v", text, b, b, again, err)
		}
	})
}
