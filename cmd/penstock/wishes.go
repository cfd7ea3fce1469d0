package main

import (
	"context"
	"io"
	"log/slog"
	"time"
)

// wishes are granted one after the other in a goroutine of their own, since who reads
// what comes of them may be slow. A nil *wishes grants none.
type wishes struct {
	wanted chan struct{} // one at most waits
	ended  chan struct{}
}

// newWishes has grant called for each wish, and last after them all.
func newWishes(grant, last func()) *wishes {
	w := &wishes{wanted: make(chan struct{}, 1), ended: make(chan struct{})}
	go func() {
		defer close(w.ended)
		for range w.wanted {
			grant()
		}
		last()
	}()
	return w
}

// newSummaries are wishes for summaries, of which there is a last one.
func newSummaries(w io.Writer, form string, log *slog.Logger, s server) *wishes {
	write := func() {
		if err := writeSummary(w, form, s.Summary()); err != nil {
			log.Warn("summary not written", "error", err)
		}
	}
	return newWishes(write, write)
}

// newListings are wishes for lists of the sessions, where each one is told of.
func newListings(ctx context.Context, log *slog.Logger, s server) *wishes {
	if !log.Enabled(ctx, slog.LevelDebug) {
		return nil
	}
	return newWishes(func() { logSessions(ctx, log, s) }, func() {})
}

// ask makes a wish, unless one was made that is not being granted yet.
func (w *wishes) ask() {
	if w == nil {
		return
	}
	select {
	case w.wanted <- struct{}{}:
	default:
	}
}

// end has no wish granted any more but what was asked for.
func (w *wishes) end() {
	if w != nil {
		close(w.wanted)
	}
}

// finish is end, and waits for the last: until stuck, or for lastWords if that is nil.
func (w *wishes) finish(stuck <-chan time.Time) {
	if w == nil {
		return
	}
	if stuck == nil {
		stuck = time.After(lastWords)
	}
	w.end()
	select {
	case <-w.ended:
	case <-stuck:
	}
}
