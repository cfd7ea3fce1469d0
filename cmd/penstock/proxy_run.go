package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/penstock/penstock/proxy"
	"github.com/penstock/penstock/proxy/socket"
)

// lastWords is how long the program waits, at its end, for those who read its
// output, and for everything after a second signal.
const lastWords = time.Second

// errStuck is the end of a program that could not end in time.
var errStuck = fmt.Errorf("%w: it took too long to end them", proxy.ErrCut)

// run opens the server and lets it serve until it has ended, and obeys signals
// meanwhile: whatever the server, or who reads the output, is waiting for. Who writes to
// patient may have to wait.
func (c *proxyCmd) run(e *env, cfg *proxy.Config, patient *slog.Logger) error {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	all, leave := context.WithCancel(context.Background())
	defer leave()
	opened, ended := make(chan *proxy.Server), make(chan error, 1)
	go func() { ended <- c.serve(ctx, cfg, opened) }()
	cut := func() {}
	var told, listed *wishes
	var stuck <-chan time.Time
	for {
		select {
		case server := <-opened:
			cut = server.Cut
			told, listed = newSummaries(e.stdout, c.Log, cfg.Log, server), newListings(all, patient, server)
		case err := <-ended:
			listed.end()
			told.finish(stuck)
			return err
		case <-e.asks:
			told.ask()
			listed.ask()
		case <-e.stops:
			if ctx.Err() == nil {
				stop()
			} else if stuck == nil {
				stuck = time.After(lastWords)
				go cut()
			}
		case <-stuck:
			return errStuck
		}
	}
}

// serve opens a server, passes it on, and serves. A stop while it opens is no
// error: nothing was cut.
func (c *proxyCmd) serve(ctx context.Context, cfg *proxy.Config, opened chan<- *proxy.Server) error {
	server, err := proxy.Open(ctx, cfg)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		cfg.Log.Info("stopped before it listened", "error", err)
		return nil
	case errors.Is(err, socket.ErrAddress):
		return usagef("proxy: --to: %w", err)
	default:
		return err
	}
	opened <- server
	c.logStart(cfg)
	return server.Serve(ctx)
}

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
func newSummaries(w io.Writer, form string, log *slog.Logger, server *proxy.Server) *wishes {
	write := func() {
		if err := writeSummary(w, form, server.Summary()); err != nil {
			log.Warn("summary not written", "error", err)
		}
	}
	return newWishes(write, write)
}

// newListings are wishes for lists of the sessions, where each one is told of.
func newListings(ctx context.Context, log *slog.Logger, server *proxy.Server) *wishes {
	if !log.Enabled(ctx, slog.LevelDebug) {
		return nil
	}
	return newWishes(func() { logSessions(ctx, log, server) }, func() {})
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
