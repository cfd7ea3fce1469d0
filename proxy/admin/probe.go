package admin

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// aliveTime is how long the loops of a process may take to respond to a probe.
const aliveTime = 2 * time.Second

// A probe is the answer to a probe, in plain text: 200, or 503 and the reason.
type probe struct{ problem string }

// ServeHTTP writes the answer.
func (p probe) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	if p.problem != "" {
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintln(w, p.problem)
		return
	}
	fmt.Fprintln(w, "ok")
}

// livez handles GET /livez: the process lives while every loop responds.
func (s *Server) livez(ctx context.Context, _ *arguments) (any, error) {
	if s.cfg.Alive == nil {
		return probe{}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, aliveTime)
	defer cancel()
	if err := s.cfg.Alive(ctx); err != nil {
		return probe{fmt.Sprintf("not every loop has responded within %v", aliveTime)}, nil
	}
	return probe{}, nil
}

// readyz handles GET /readyz: the process is ready until it is about to drain.
func (s *Server) readyz(context.Context, *arguments) (any, error) {
	switch starts, leaves := s.leaving(); {
	case leaves && time.Now().Before(starts):
		return probe{"the process is about to drain, and accepts until then"}, nil
	case leaves || s.cfg.Leaving == nil && s.cfg.Balancer.Status().State == Draining:
		return probe{"the process drains"}, nil
	}
	return probe{}, nil
}

// leaving reports whether the process is about to drain or drains, and when it begins to drain.
func (s *Server) leaving() (starts time.Time, leaves bool) {
	if s.cfg.Leaving == nil {
		return starts, false
	}
	return s.cfg.Leaving()
}
