package server

import (
	"log/slog"
	"strings"
	"time"

	"github.com/penstock/penstock/proxy/internal/health"
	"github.com/penstock/penstock/proxy/internal/monitor"
)

// logHealth logs a transition, or one line for many of an upstream's. A transition that was
// held back is logged with its own time; while a subject flaps that is a warning, whatever its
// last state.
func (s *Server) logHealth(t health.Transition) {
	level := slog.LevelInfo
	if t.Bad || t.Suppressed > 0 {
		level = slog.LevelWarn
	}
	upstream, endpoint := partsOf(t.Subject)
	attrs, name := []any{"upstream", upstream}, upstream
	if endpoint != "" {
		attrs, name = append(attrs, "endpoint", endpoint), endpoint
	}
	attrs = append(attrs, "state", t.State)
	if t.Cause != "" {
		attrs = append(attrs, "cause", t.Cause)
	}
	if t.Suppressed > 0 {
		attrs = append(attrs, "flapping", true, "suppressed", t.Suppressed)
	}
	if at := s.wall(t.Time); time.Since(at) > time.Second {
		attrs = append(attrs, "happened", at.Format(time.RFC3339Nano))
	}
	s.lines.Note(s.now(), &monitor.Line{
		Upstream: upstream, Level: level, Message: t.Kind.String(), Kind: t.State, Name: name, Count: int64(1 + t.Suppressed), Attrs: attrs,
	})
}

// partsOf returns the upstream of a transition's subject, and the endpoint; empty: it is of the upstream. An upstream's name has
// no slash.
func partsOf(subject string) (upstream, endpoint string) {
	_, of, _ := strings.Cut(subject, " ")
	upstream, endpoint, _ = strings.Cut(of, "/")
	return upstream, endpoint
}
