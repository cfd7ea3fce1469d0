package episode

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestEpisodesThatComeAndGoAreToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		e := Episode{over: func() { told = append(told, "over") }}
		check := func(want ...string) {
			e.mu.Lock()
			defer e.mu.Unlock()
			if !slices.Equal(told, want) {
				t.Errorf("reported %v, want %v", told, want)
			}
		}
		again := func() { e.Begin(func() { told = append(told, "begin") }) }
		for range 100 {
			again()
			time.Sleep(quiet)
			e.End()
			time.Sleep(quiet - 1)
		}
		check("begin")
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		check("begin", "over")
	})
}

// TestEndsAreNotToldAfterTheStop: neither that of an episode that was about to be over
// nor one's that ends later; a beginning is.
func TestEndsAreNotToldAfterTheStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		tell := func(what string) func() { return func() { told = append(told, what) } }
		early, late, fresh := Episode{over: tell("over")}, Episode{over: tell("over")}, Episode{over: tell("over")}
		all := []*Episode{&early, &late, &fresh}
		early.Begin(tell("early"))
		late.Begin(tell("late"))
		early.End()
		for _, e := range all {
			e.Stop()
			e.Stop()
		}
		fresh.Begin(tell("fresh"))
		for _, e := range all {
			e.End()
		}
		time.Sleep(2 * quiet)
		synctest.Wait()
		if want := []string{"early", "late", "fresh"}; !slices.Equal(told, want) {
			t.Errorf("reported %v, want %v", told, want)
		}
	})
}
