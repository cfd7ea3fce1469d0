package rollback_test

import (
	"context"
	"errors"
	"slices"
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

// events lists the reported events.
func (r *rig) events() (list []rollback.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.told {
		list = append(list, c.Event)
	}
	return list
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
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
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
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.change(t, "two", twoMinutes)
		time.Sleep(2*time.Minute - time.Nanosecond)
		synctest.Wait()
		r.holds(t, 2, "one", "two")
		if p := r.Status().Pending; p == nil || p.Generation != 2 || p.RollbackIf != "failures>50" || time.Until(p.Until) != time.Nanosecond {
			t.Errorf("pending is %+v", p)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		r.holds(t, 1, "one", "two", "one")
		s := r.Status()
		if s.Pending != nil || s.Previous != 0 || s.History[0].State != rollback.RolledBack || s.History[0].Why != "it was not confirmed within 2m0s" {
			t.Errorf("%+v", s)
		}
		if got, want := r.events(), []rollback.Event{rollback.Applied, rollback.TakenBack}; !slices.Equal(got, want) {
			t.Errorf("reported %q, want %q", got, want)
		}
		// The generation numbers continue.
		r.change(t, "three", rollback.Options{})
		r.holds(t, 3, "one", "two", "one", "three")
	})
}

func TestConfirmedChangeStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
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
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.failures.Store(1000)
		r.change(t, "two", twoMinutes)
		r.failures.Add(50)
		time.Sleep(time.Minute)
		synctest.Wait()
		r.holds(t, 2, "one", "two")
		if p := r.Status().Pending; p == nil || p.Increase != 50 {
			t.Errorf("pending is %+v", p)
		}
		r.failures.Add(1)
		time.Sleep(250 * time.Millisecond)
		synctest.Wait()
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
		time.Sleep(time.Second)
		synctest.Wait()
		if _, n := k.Current(); n != 1 {
			t.Errorf("generation %d is in force", n)
		}
	})
}

// TestWordsOfConfirmations: an error says which generation waits, is in force, or was rolled back by whom.
func TestWordsOfConfirmations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		confirm := func(number int, wraps error, want string) {
			t.Helper()
			if _, err := r.Confirm(t.Context(), number, "test"); !errors.Is(err, wraps) || err.Error() != want {
				t.Errorf("%d: %v, want %s", number, err, want)
			}
		}
		r.change(t, "two", rollback.Options{})
		r.change(t, "three", twoMinutes)
		confirm(999, rollback.ErrNothing, "nothing to confirm as generation 999: the last one is 3, which waits to be confirmed")
		confirm(2, rollback.ErrLate, "too late to confirm generation 2: it is generation 3 that waits to be confirmed")
		if _, err := r.Rollback(t.Context(), 0, "uid=7"); err != nil {
			t.Fatal(err)
		}
		confirm(0, rollback.ErrNothing, "nothing waits to be confirmed: generation 2 is in force, and generation 3 was rolled back: asked for by uid=7")
	})
}

// TestSinceWhenAGenerationIsInForce: a rollback begins the time of the generation anew; its record has the first time.
func TestSinceWhenAGenerationIsInForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
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
		if _, err := r.Rollback(t.Context(), 0, "test"); err != nil {
			t.Fatal(err)
		}
		since(began.Add(2 * time.Hour))
		if h := r.Status().History; !h[len(h)-1].At.Equal(began) {
			t.Errorf("the first generation is of %v, want %v", h[len(h)-1].At, began)
		}
	})
}

// TestConfirmationComesTooLate: the confirmation comes after the bound is passed and before the
// counter is read.
func TestConfirmationComesTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
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
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.change(t, "two", twoMinutes)
		time.Sleep(30 * time.Second)
		_, err := r.Apply(t.Context(), "three", rollback.Options{})
		if !errors.Is(err, rollback.ErrPending) || !strings.Contains(err.Error(), "generation 2 waits to be confirmed, and is rolled back in 1m30s otherwise: run penstock confirm or ") {
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
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				if _, err := r.Rollback(t.Context(), 0, "test"); !errors.Is(err, rollback.ErrNothing) {
					t.Errorf("a rollback without a change: %v", err)
				}
				r.change(t, "two", o)
				if done, err := r.Rollback(t.Context(), 0, "test"); done.Generation != 1 || err != nil {
					t.Errorf("%+v: %v", done, err)
				}
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

// TestFailedChangeChangesNothing: neither the state in force nor the history changes.
func TestFailedChangeChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
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
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.change(t, "two", twoMinutes)
		r.failWith(errors.New("bad"))
		time.Sleep(2*time.Minute + time.Second)
		synctest.Wait()
		r.holds(t, 2, "one", "two")
		if s := r.Status(); s.Pending == nil || !strings.Contains(s.History[0].Why, "bad") {
			t.Errorf("%+v", s)
		}
		r.failWith(nil)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		r.holds(t, 1, "one", "two", "one")
		if got, want := r.events(), []rollback.Event{rollback.Applied, rollback.RollbackFailed, rollback.TakenBack}; !slices.Equal(got, want) {
			t.Errorf("reported %q, want %q", got, want)
		}
	})
}

// TestConfirmedAfterFailedRollback: a change that cannot be rolled back may be confirmed, and
// stays.
func TestConfirmedAfterFailedRollback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
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
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
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
