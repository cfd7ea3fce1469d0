package rollback_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/penstock/penstock/proxy/rollback"
)

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
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
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
			time.Sleep(time.Minute)
			synctest.Wait()
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
