package server

import (
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/proxy/internal/router"
)

// newListenerState makes the door of a listener, which has it logged that a limit is reached, but at
// most once in logEvery.
func (s *Server) newListenerState(listener string) *router.ListenerState {
	var told atomic.Int64 // clock of the last line; 0: never
	var since atomic.Int64
	return &router.ListenerState{Name: listener, Paused: func(limit string, now time.Duration) {
		times := since.Add(1)
		last := told.Load()
		if last != 0 && int64(now)-last < int64(logEvery) || !told.CompareAndSwap(last, max(int64(now), 1)) {
			return
		}
		since.Add(-times)
		s.log.Info("listener at its limit, further clients wait", "listener", listener, "limit", limit, "times", times)
	}}
}
