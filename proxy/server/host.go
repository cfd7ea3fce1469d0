package server

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/penstock/penstock/proxy/internal/limit"
	"github.com/penstock/penstock/proxy/internal/record"
	"github.com/penstock/penstock/proxy/internal/tlsterm"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// logEvery is how often, at most, a transition of an endpoint or an upstream is logged.
const logEvery = 10 * time.Second

// host is a Server as the loops see it.
type host Server

func (h *host) server() *Server { return (*Server)(h) }

// Full implements [worker.Host].
func (h *host) Full(full bool) {
	s := h.server()
	if !full {
		s.full.End()
		return
	}
	s.full.Begin(func() { s.log.Warn("limit of connections reached, further clients wait") })
}

// Paused implements [worker.Host]. A listener's own limits are no failure.
func (h *host) Paused(l *worker.Listening, cause error, active, pauses int64) {
	if errors.Is(cause, limit.ErrConnections) || errors.Is(cause, limit.ErrRate) {
		return
	}
	s, socket := h.server(), l.Of.(*listenSocket)
	s.paused.Add(1)
	closed := s.trim()
	socket.pauses.Begin(func() {
		s.log.Warn("accepting paused", "address", socket.listener.Addr(), "error", cause,
			"active", active, "pauses", pauses, "pipes_closed", closed)
	})
	socket.pauses.End() // unless it fails again, which it soon would
}

// Closed implements [worker.Host].
func (h *host) Closed(l *worker.Listening) {
	socket := l.Of.(*listenSocket)
	socket.pauses.Stop()
	h.server().logUnclosed(socket, socket.listener.Close())
	close(socket.closed)
}

// Left implements [worker.Host].
func (h *host) Left(l *worker.Listening) { h.server().abandonSockets(l.Of.(*listenSocket)) }

// Trim implements [worker.Host].
func (h *host) Trim() int { return h.server().trim() }

func (s *Server) trim() int {
	if s.pipes == nil {
		return 0
	}
	return s.pipes.Trim()
}

// logsSessions reports whether the log has a line for each session.
func (h *host) logsSessions() bool { return h.log.Enabled(context.Background(), slog.LevelDebug) }

// Refused implements [worker.Host].
func (h *host) Refused(l *worker.Listening, cause error) {
	s, socket := h.server(), l.Of.(*listenSocket)
	if _, next := s.rulesAt(socket, nil); next != nil {
		next.Config().State.Refused(cause)
	} else {
		s.listenerStateAt(socket, nil).Refused(cause)
	}
	if worker.LacksDescriptor(cause) {
		s.outOfDescriptors.Begin(func() { s.log.Warn("client refused for want of descriptors", "error", cause) })
		s.outOfDescriptors.End()
	}
}

// logSession logs the end of a client.
func (s *Server) logSession(r *record.Record) {
	switch r.Outcome {
	case record.Joined:
		attrs := []any{
			"listener", r.Listener, "upstream", r.Upstream, "client", r.From().String(), "endpoint", r.Endpoint, "endpoint_address", r.EndpointName(), "reason", r.Reason(), "duration", r.Result.Duration.String(),
			"bytes_to_endpoint", r.Result.AToB.Bytes(), "bytes_to_client", r.Result.BToA.Bytes(),
		}
		if r.Verdict != "" {
			attrs = append(attrs, "verdict", r.Verdict)
		}
		if r.Err != nil {
			attrs = append(attrs, "error", r.Err)
		}
		s.log.Debug("session ended", attrs...)
	case record.Refused, record.Canceled:
		attrs := []any{"listener", r.Listener, "client", r.From().String()}
		for _, a := range [...]struct{ name, value string }{
			{"reason", r.Why},
			{"upstream", r.Upstream},
			{"sni", r.ServerName},
			{"protocol", r.Protocol},
			{"host", r.Host},
			{"path", r.Path},
			{"user", r.User},
			{"database", r.Database},
		} {
			if a.value != "" {
				attrs = append(attrs, a.name, a.value)
			}
		}
		s.log.Debug("connection refused", append(attrs, "error", r.Err)...)
	}
}

// logFiles logs a change of certificates, or its failure.
func (s *Server) logFiles(c tlsterm.Change) {
	if c.Err != nil {
		s.log.Error("certificates not changed", "files", c.Paths, "error", c.Err)
		return
	}
	s.log.Info("certificates changed", "files", c.Paths)
}
