package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/penstock/penstock/relay"
)

// Serve accepts and joins connections until ctx ends; then it accepts those that
// were established by then, closes the listeners, and drains: it returns when
// every session has ended. Sessions that go on for longer than the drain timeout
// are cut, as by [Server.Cut]. It may be called once.
//
// The error is nil after a full drain; it wraps [ErrCut] if sessions were cut.
func (s *Server) Serve(ctx context.Context) error {
	var serving sync.WaitGroup
	for _, l := range s.listeners {
		serving.Go(func() {
			if err := l.Serve(ctx, s.handle); err != nil {
				s.log.Warn("closing a listener failed", "address", l.Addr(), "error", err)
			}
		})
		s.log.Info("listening", "address", l.Addr())
	}
	ended := make(chan struct{})
	go func() {
		serving.Wait()
		close(ended)
	}()
	select {
	case <-ctx.Done():
		s.drain(ended)
	case <-s.cut.Done():
	}
	<-ended
	err := s.close()
	if n := s.sessions.cut(); n > 0 {
		return fmt.Errorf("%w: %d", ErrCut, n)
	}
	return err
}

// drain waits until all sessions have ended, or cuts them.
func (s *Server) drain(ended <-chan struct{}) {
	s.log.Info("draining", "active", s.sessions.active(), "drain_timeout", s.cfg.DrainTimeout.String())
	var timeout <-chan time.Time
	if s.cfg.DrainTimeout > 0 {
		timeout = s.after(s.cfg.DrainTimeout)
	}
	select {
	case <-ended:
		s.log.Info("drained")
	case <-s.cut.Done():
	case <-timeout:
		s.log.Warn("drain timeout", "active", s.sessions.active())
		s.Cut()
	}
}

// Cut ends a Serve at once: its listeners are closed, and all sessions end as by
// the end of the context of [relay.Session.Run]. It may be called at any time by
// any goroutine.
func (s *Server) Cut() {
	s.cutNow()
	s.sessions.cutAll(context.Cause(s.cut))
	for _, l := range s.listeners {
		l.Close()
	}
}

// handle serves one client, from its acceptance to the start of its session, which
// goes on without the goroutine that handle is called on: the stack that dialing has
// grown is not kept for as long as the session lasts.
func (s *Server) handle(client net.Conn, release func()) {
	s.sessions.accept()
	endpoint, err := s.connect()
	if err != nil {
		s.refuse(client, err)
		release()
		return
	}
	session := s.relay.NewSession(client, endpoint)
	s.sessions.start(session)
	ended := func(result relay.Result, err error) {
		s.sessions.end(session, result)
		s.logEnd(client, endpoint, result, err)
		release()
	}
	if s.cut.Err() != nil {
		session.Cut(context.Cause(s.cut))
	}
	if err := session.Start(ended); err != nil {
		ended(session.Result(), err) // two connections, and a new session: it does not happen
	}
}

// How long a connection that lacks a descriptor waits for one: dialPause at a time
// when no other connection ends first, and dialPatience in all. Without the
// latter, connections that were accepted with the last descriptors would wait for
// each other.
const (
	dialPause    = 100 * time.Millisecond
	dialPatience = 5 * time.Second
)

// connect connects to a target, if need be with the descriptor that was kept for
// it. While descriptors are short the client waits, as it would in the accept queue,
// and nobody else is accepted.
func (s *Server) connect() (net.Conn, error) {
	defer s.spares.release()
	conn, err := s.dial(s.cut)
	if lacksDescriptor(err) && s.spares.claim() {
		conn, err = s.dial(s.cut)
	}
	if !lacksDescriptor(err) {
		return conn, err
	}
	defer s.limit.Hold()()
	for end := s.after(dialPatience); lacksDescriptor(err); conn, err = s.dial(s.cut) {
		if s.trim() > 0 {
			continue
		}
		select {
		case <-s.limit.Released():
		case <-s.after(dialPause):
		case <-end:
			return nil, err
		case <-s.cut.Done():
			return nil, err
		}
	}
	return conn, err
}

func lacksDescriptor(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// refuse resets a client that no target took: an orderly close would tell it that
// its server had nothing to say. (A unix socket has no reset; there it is an end
// of file unless the client had sent something, which makes it ECONNRESET.)
func (s *Server) refuse(client net.Conn, cause error) {
	if tcp, ok := client.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
	client.Close()
	s.sessions.refuse(s.cut.Err() != nil)
	if lacksDescriptor(cause) {
		s.refused.begin(func() { s.log.Warn("client refused for want of descriptors", "error", cause) })
		s.refused.end()
	}
	s.log.Debug("connection refused", "client", address(client.RemoteAddr()), "error", cause)
}

func (s *Server) logEnd(client, endpoint net.Conn, r relay.Result, err error) {
	if !s.log.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	// A connection of package net knows its addresses when it is closed, too.
	attrs := []any{
		"client", address(client.RemoteAddr()), "endpoint", address(endpoint.RemoteAddr()), "reason", r.Reason.String(),
		"duration", r.Duration.String(), flow("client_to_endpoint", r.AToB), flow("endpoint_to_client", r.BToA),
	}
	if err != nil {
		attrs = append(attrs, "error", err)
	}
	s.log.Debug("session ended", attrs...)
}

func flow(name string, f relay.Flow) slog.Attr {
	attrs := []any{"spliced", f.Spliced, "copied", f.Copied, "lost", f.Lost}
	for fallback, n := range f.Fallbacks.All() {
		attrs = append(attrs, fallback.String(), n)
	}
	return slog.Group(name, attrs...)
}

// address names a peer; that of a unix socket has no name as a rule.
func address(a net.Addr) string {
	if a == nil {
		return ""
	}
	if a.Network() == "unix" {
		return "unix:" + a.String()
	}
	return a.String()
}
