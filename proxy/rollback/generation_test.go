package rollback_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock/proxy/rollback"
)

// TestUnchangedStateIsNoGeneration: a reload of the same file keeps the way back.
func TestUnchangedStateIsNoGeneration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
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
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
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
			if done, err := r.Rollback(t.Context(), to.number, "test"); err != nil || done.Generation != to.generation {
				t.Fatalf("to %d: %+v, %v", to.number, done, err)
			}
			if state, _ := r.Current(); state != to.state || r.Status().Previous != to.previous || !slices.Equal(r.states(), to.states) {
				t.Errorf("to %d: %q is in force, and the states are %q; %+v", to.number, state, r.states(), r.Status())
			}
		}
		for number, want := range map[int]string{1: "generation 1 is in force", 7: "generation 7 is not kept: there are 1, 2, 3, 4"} {
			if _, err := r.Rollback(t.Context(), number, "test"); !errors.Is(err, rollback.ErrNothing) || !strings.Contains(err.Error(), want) {
				t.Errorf("to %d: %v", number, err)
			}
		}
		r.change(t, "five", rollback.Options{})
		if done, err := r.Rollback(t.Context(), 0, "test"); err != nil || done.Generation != 1 {
			t.Errorf("the next change: %+v, %v", done, err)
		}
	})
}

// TestRefusedChangesEvictNoOther: generations that were taken back make room first.
func TestRefusedChangesEvictNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.change(t, "two", rollback.Options{})
		for i := range 30 {
			r.change(t, strconv.Itoa(i), twoMinutes)
			time.Sleep(3 * time.Minute)
			synctest.Wait()
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
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		for i := range 1000 {
			r.change(t, strconv.Itoa(i), rollback.Options{})
		}
		s := r.Status()
		if s.Current != 1001 || s.Previous != 1000 || len(s.History) != rollback.Kept || s.History[0].Generation != 1001 || s.History[9].Generation != 992 {
			t.Errorf("%+v", s)
		}
	})
}
