package server

import (
	"context"
	"log/slog"
	"time"
)

// stalledAfter is how long an event loop may take for one turn before that is logged.
const stalledAfter = time.Second

// A stallWatch logs that an event loop does not turn: its clients get nothing meanwhile, and
// requests to the admin interface that need all loops wait.
type stallWatch struct {
	log   *slog.Logger
	alive func(ctx context.Context) error // returns when every loop has turned
}

// run watches until stop.
func (w *stallWatch) run(stop <-chan struct{}) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	tick := time.NewTicker(stalledAfter)
	defer tick.Stop()
	turned := make(chan error, 1)
	for {
		began := time.Now()
		go func() { turned <- w.alive(ctx) }()
		if !w.await(turned, began, stop) {
			return
		}
		select {
		case <-stop:
			return
		case <-tick.C:
		}
	}
}

// await waits until every loop has turned, and logs if that takes long. It returns false if
// the loops end, or at stop.
func (w *stallWatch) await(turned <-chan error, began time.Time, stop <-chan struct{}) bool {
	late := time.NewTimer(stalledAfter)
	defer late.Stop()
	stalled := false
	for {
		select {
		case <-stop:
			return false
		case <-late.C:
			stalled = true
			w.log.Warn("event loop stalled, its clients get nothing", "duration", stalledAfter)
		case err := <-turned:
			if stalled {
				w.log.Info("event loop turns again", "duration", time.Since(began).Round(time.Millisecond))
			}
			return err == nil
		}
	}
}
