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
// meanwhile: whatever the server, or who reads the output, is waiting for.
func (c *proxyCmd) run(e *env, cfg *proxy.Config) error {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	opened, ended := make(chan *proxy.Server), make(chan error, 1)
	go func() { ended <- c.serve(ctx, cfg, opened) }()
	cut := func() {}
	var told *summaries
	var stuck <-chan time.Time
	for {
		select {
		case server := <-opened:
			cut = server.Cut
			told = newSummaries(e.stdout, c.Log, cfg.Log, server)
		case err := <-ended:
			told.finish(stuck)
			return err
		case <-e.asks:
			told.ask()
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

// summaries writes summaries in a goroutine of its own, since who reads them may
// be slow. A nil *summaries writes none.
type summaries struct {
	wanted chan struct{} // one at most waits
	ended  chan struct{}
}

func newSummaries(w io.Writer, form string, log *slog.Logger, server *proxy.Server) *summaries {
	s := &summaries{wanted: make(chan struct{}, 1), ended: make(chan struct{})}
	write := func() {
		if err := writeSummary(w, form, server.Summary()); err != nil {
			log.Warn("summary not written", "error", err)
		}
	}
	go func() {
		defer close(s.ended)
		for range s.wanted {
			write()
		}
		write()
	}()
	return s
}

// ask asks for a summary, unless one that is asked for was not begun yet.
func (s *summaries) ask() {
	if s == nil {
		return
	}
	select {
	case s.wanted <- struct{}{}:
	default:
	}
}

// finish writes the last summary. It gives up at end, or after lastWords if that
// is nil.
func (s *summaries) finish(end <-chan time.Time) {
	if s == nil {
		return
	}
	if end == nil {
		end = time.After(lastWords)
	}
	close(s.wanted)
	select {
	case <-s.ended:
	case <-end:
	}
}
