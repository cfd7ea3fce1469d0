package server

import (
	"fmt"
	"log/slog"
	"math"
	"strings"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/internal/health"
	"github.com/penstock/penstock/proxy/internal/monitor"
	"github.com/penstock/penstock/proxy/internal/router"
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

// wall is a time of the server's clock as people know it.
func (s *Server) wall(clock int64) time.Time { return s.start.Add(time.Duration(clock)).Round(0) }

// downState returns the state of an endpoint that its checks have taken out.
func (m *member) downState() admin.State {
	if m.check != nil && m.check.Status().Standby {
		return admin.Standby
	}
	return admin.Down
}

// whyDown returns the result of an endpoint's checks.
func (m *member) whyDown() string {
	if m.check == nil {
		return ""
	}
	st := m.check.Status()
	if st.Err != nil {
		return st.Err.Error()
	}
	return fmt.Sprintf("%d of its checks in a row succeeded, which is not enough yet", st.Streak)
}

// lastFailure is an endpoint's last failure, nil if there was none.
func (s *Server) lastFailure(e *router.Endpoint) *admin.Failure {
	f, any := e.LastFailure()
	if !any {
		return nil
	}
	return &admin.Failure{Cause: f.Cause, Time: s.wall(f.At), Over: f.Over, Connecting: f.Connecting}
}

// failingFor is for how long after its last failed session an endpoint is said to fail its clients.
const failingFor = time.Minute

// failing is the row of sessions that an endpoint has failed, nil if it is not long, or long ago.
func (s *Server) failing(e *router.Endpoint) *admin.Failing {
	n, since, last := e.UnservedStreak()
	if n < manyFailed || s.now()-last > int64(failingFor) {
		return nil
	}
	return &admin.Failing{Clients: n, Since: s.wall(since)}
}

// ejection says why an endpoint is ejected, and until when, if that is known.
func (s *Server) ejection(m *member) (why string, until time.Time) {
	if m.monitor == nil {
		return "", time.Time{}
	}
	end, ejected := m.monitor.Ejected()
	if !ejected {
		return "", time.Time{}
	}
	if end == math.MaxInt64 {
		return m.monitor.Why(), time.Time{}
	}
	return m.monitor.Why(), s.wall(end)
}

// circuit says why a breaker is not closed, and until when it is open.
func (s *Server) circuit(b *health.Breaker) (why string, until time.Time) {
	why, end := b.Why()
	if end != 0 {
		until = s.wall(end)
	}
	return why, until
}
