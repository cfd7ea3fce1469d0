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
		again()
		e.end()
		e.close()
		time.Sleep(2 * quiet)
		check("begin", "over", "begin", "over")
	})
}
