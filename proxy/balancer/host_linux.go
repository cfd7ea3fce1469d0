package balancer

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/penstock/penstock/proxy/core"
	"github.com/penstock/penstock/proxy/limit"
	"github.com/penstock/penstock/proxy/terminate"
	"github.com/penstock/penstock/relay"
)

// tellEvery is how often, at most, a transition of an endpoint or an upstream is logged.
const tellEvery = 10 * time.Second

// host is a Server as the loops see it.
type host Server

func (h *host) server() *Server { return (*Server)(h) }

// Full implements [core.Host].
func (h *host) Full(full bool) {
	s := h.server()
	if !full {
		s.full.End()
		return
	}
	s.full.Begin(func() { s.log.Warn("limit of connections reached, further clients wait") })
}

// Paused implements [core.Host]. A listener's own limits are no failure.
func (h *host) Paused(l *core.Listening, cause error, active, pauses int64) {
	if errors.Is(cause, limit.ErrConnections) || errors.Is(cause, limit.ErrRate) {
		return
	}
	s, b := h.server(), l.Of.(*bound)
	s.paused.Add(1)
	closed := s.trim()
	b.pauses.Begin(func() {
		s.log.Warn("accepting paused", "address", b.listener.Addr(), "error", cause,
			"active", active, "pauses", pauses, "pipes_closed", closed)
	})
	b.pauses.End() // unless it fails again, which it soon would
}

// Closed implements [core.Host].
func (h *host) Closed(l *core.Listening) {
	b := l.Of.(*bound)
	b.pauses.Stop()
	h.server().tellUnclosed(b, b.listener.Close())
	close(b.closed)
}

// Left implements [core.Host].
func (h *host) Left(l *core.Listening) { h.server().desert(l.Of.(*bound)) }

// Trim implements [core.Host].
func (h *host) Trim() int { return h.server().trim() }

func (s *Server) trim() int {
	if s.pipes == nil {
		return 0
	}
	return s.pipes.Trim()
}

// Detailed implements [core.Host].
func (h *host) Detailed() bool { return h.log.Enabled(context.Background(), slog.LevelDebug) }

// Refused implements [core.Host].
func (h *host) Refused(l *core.Listening, client string, cause error) {
	s := h.server()
	s.doorAt(l.Of.(*bound), nil).Refused(cause)
	if core.LacksDescriptor(cause) {
		s.starved.Begin(func() { s.log.Warn("client refused for want of descriptors", "error", cause) })
		s.starved.End()
	}
	if h.Detailed() {
		s.log.Debug("connection refused", "listener", l.Name, "client", client, "error", cause)
	}
}

// Ended implements [core.Host].
func (h *host) Ended(of *core.Session, r relay.Result, err error) {
	attrs := []any{
		"listener", of.Listener, "upstream", of.Upstream, "client", of.Client, "endpoint", of.Endpoint, "name", of.EndpointName, "reason", r.Reason.String(), "duration", r.Duration.String(),
		"client_to_endpoint", r.AToB.Bytes(), "endpoint_to_client", r.BToA.Bytes(),
	}
	if err != nil {
		attrs = append(attrs, "error", err)
	}
	h.log.Debug("session ended", attrs...)
}

// tellFiles logs what has become of changed certificates.
func (s *Server) tellFiles(c terminate.Change) {
	if c.Err != nil {
		s.log.Error("certificates not changed", "files", c.Paths, "error", c.Err)
		return
	}
	s.log.Info("certificates changed", "files", c.Paths)
}
