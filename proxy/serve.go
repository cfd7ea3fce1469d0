package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/penstock/penstock/proxy/core"
	"github.com/penstock/penstock/proxy/listener"
	"github.com/penstock/penstock/relay"
)

// Serve accepts and joins connections until ctx ends; then it accepts those that
// were established by then, closes the listeners, and drains: it returns when
// every session has ended. Sessions that go on until the end of the drain timeout
// are cut, see [core.Spread]. It may be called once.
//
// The error is nil after a full drain; it wraps [ErrCut] if sessions were cut.
func (s *Server) Serve(ctx context.Context) error {
	ended := make(chan struct{})
	var failed error
	go func() {
		failed = s.driver.serve(ctx)
		close(ended)
	}()
	for _, l := range s.listeners {
		s.log.Info("listening", "address", l.Addr())
	}
	var summing sync.WaitGroup
	summing.Go(func() { s.sumRefusals(ended) })
	select {
	case <-ctx.Done():
		s.drain(ended)
	case <-s.cut.Done():
	case <-ended:
	}
	<-ended
	summing.Wait()
	err := errors.Join(failed, s.close())
	if n := s.driver.summary().Canceled; n > 0 {
		return fmt.Errorf("%w: %d", ErrCut, n)
	}
	return err
}

// drainLook is how often it is logged what a drain waits for.
const drainLook = 10 * time.Second

// drain waits until all sessions have ended, or cuts them.
func (s *Server) drain(ended <-chan struct{}) {
	s.stopEpisodes()
	timeout := s.cfg.DrainTimeout
	s.log.Info("draining", "active", s.driver.active(), "drain_timeout", timeout.String())
	spread := core.NewSpread(timeout)
	var step <-chan time.Time
	var until []any // nothing, for a drain that may take any time
	if timeout > 0 {
		until = []any{"until", time.Now().Add(timeout).Format(time.RFC3339)}
		step = s.after(spread.First)
	}
	for n, look := 0, s.after(drainLook); ; {
		select {
		case <-ended:
			s.log.Info("drained")
			return
		case <-s.cut.Done():
			return
		case <-look:
			s.log.Info("drain waits for sessions", append([]any{"sessions", s.driver.active()}, until...)...)
			look = s.after(drainLook)
		case <-step:
			s.cutSome(spread, n)
			if n++; n == spread.Steps {
				return
			}
			step = s.after(spread.Every)
		}
	}
}

// cutSome cuts some of the sessions that are left, all of them in the last step.
func (s *Server) cutSome(spread core.Spread, step int) {
	if step == 0 {
		s.log.Warn("drain timeout", "active", s.driver.active(), "resets_within", (time.Duration(spread.Steps-1) * spread.Every).String())
	}
	if step == spread.Steps-1 {
		s.Cut()
		return
	}
	s.driver.cutSome(func() bool { return spread.Cuts(step) }, context.Canceled) // as Cut does
}

// Cut ends a Serve at once: its listeners are closed, and all sessions end as by
// the end of the context of [relay.Session.Run]. It may be called at any time by
// any goroutine.
func (s *Server) Cut() {
	s.stopEpisodes()
	s.cutNow()
	s.driver.cutAll(context.Cause(s.cut))
}

// tellUnclosed tells that closing a listener failed, if it did.
func (s *Server) tellUnclosed(l *listener.Listener, err error) {
	if err != nil {
		s.log.Warn("closing a listener failed", "address", l.Addr(), "error", err)
	}
}

// tellEnded tells of the end of a session.
func (s *Server) tellEnded(client, endpoint string, r relay.Result, err error) {
	attrs := []any{
		"client", client, "endpoint", endpoint, "reason", r.Reason.String(),
		"duration", r.Duration.String(), flow("client_to_endpoint", r.AToB), flow("endpoint_to_client", r.BToA),
	}
	if err != nil {
		attrs = append(attrs, "error", err)
	}
	s.log.Debug("session ended", attrs...)
}

// tellsAll reports whether each session is told of.
func (s *Server) tellsAll() bool { return s.log.Enabled(context.Background(), slog.LevelDebug) }

func flow(name string, f relay.Flow) slog.Attr {
	attrs := []any{"spliced", f.Spliced, "copied", f.Copied, "lost", f.Lost}
	for fallback, n := range f.Fallbacks.All() {
		attrs = append(attrs, fallback.String(), n)
	}
	return slog.Group(name, attrs...)
}
