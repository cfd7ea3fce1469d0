package balancer

import (
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/proxy/dispatch"
)

// newDoor makes the door of a listener, which has it logged that a limit is reached, but at
// most once in tellEvery.
func (s *Server) newDoor(listener string) *dispatch.Door {
	var told atomic.Int64 // the clock when that was told; 0: never
	var since atomic.Int64
	return &dispatch.Door{Name: listener, Paused: func(limit string, now time.Duration) {
		times := since.Add(1)
		last := told.Load()
		if last != 0 && int64(now)-last < int64(tellEvery) || !told.CompareAndSwap(last, max(int64(now), 1)) {
			return
		}
		since.Add(-times)
		s.log.Info("listener at its limit, further clients wait", "listener", listener, "limit", limit, "times", times)
	}}
}
