package proxy

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestEpisodesThatComeAndGoAreToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		e := episode{over: func() { told = append(told, "over") }}
		check := func(want ...string) {
			e.mu.Lock()
			defer e.mu.Unlock()
			if !slices.Equal(told, want) {
				t.Errorf("told %v, want %v", told, want)
			}
		}
		again := func() { e.begin(func() { told = append(told, "begin") }) }
		for range 100 {
			again()
			time.Sleep(quiet)
			e.end()
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
		early, late, fresh := episode{over: tell("over")}, episode{over: tell("over")}, episode{over: tell("over")}
		all := []*episode{&early, &late, &fresh}
		early.begin(tell("early"))
		late.begin(tell("late"))
		early.end()
		for _, e := range all {
			e.stop()
			e.stop()
		}
		fresh.begin(tell("fresh"))
		for _, e := range all {
			e.end()
		}
		time.Sleep(2 * quiet)
		synctest.Wait()
		if want := []string{"early", "late", "fresh"}; !slices.Equal(told, want) {
			t.Errorf("told %v, want %v", told, want)
		}
	})
}
