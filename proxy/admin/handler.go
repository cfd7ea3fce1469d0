package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/penstock/penstock/proxy/display"
	"github.com/penstock/penstock/proxy/rollback"
	"github.com/penstock/penstock/proxy/sockopt"
)

// Header must be in every request that changes something. A page of another site in a browser
// cannot set it without a preflight request, which is not answered. It is in every response, too.
const Header = "Penstock-Admin"

// by is the source of a change in log lines and records.
const by = "admin"

// A failure is the body of an error response.
type failure struct {
	Error   string `json:"error"`             // one line
	Details string `json:"details,omitempty"` // readable lines
}

// handler returns the HTTP handler of the server.
func (s *Server) handler() http.Handler {
	return welcomed(s.local(http.HandlerFunc(s.respond)))
}

// local refuses requests over TCP with the name of another host. They come from a page of a
// site that resolves to this machine.
func (s *Server) local(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		at, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
		if at != nil && at.Network() != "unix" && !sockopt.Loopback(r.Host) {
			write(w, http.StatusForbidden, failure{Error: fmt.Sprintf("host %q is neither a loopback address nor localhost: write http://localhost, or another address of the loopback", r.Host)})
			return
		}
		next.ServeHTTP(w, r)
	})
}

// errHeader is the error of a request that a page in a browser could have sent.
var errHeader = errors.New("a header is missing, which no page in a browser can send: write " + Header + ": 1")

// respond answers a request.
func (s *Server) respond(w http.ResponseWriter, r *http.Request) {
	v, err := s.perform(r)
	if page, ok := v.(http.Handler); ok && err == nil {
		w.Header().Set(Header, "1")
		page.ServeHTTP(w, r)
		return
	}
	if err == nil {
		write(w, http.StatusOK, v)
		return
	}
	if c, ok := errors.AsType[*ConfigError](err); ok && !trusted(r.Context()) {
		err = c.redacted()
	}
	f := failure{Error: strings.ReplaceAll(err.Error(), "\n", "; ")} // joined errors have several lines
	if c, ok := errors.AsType[*ConfigError](err); ok {
		f.Details = c.Text
	}
	if m, ok := errors.AsType[*methodError](err); ok {
		w.Header().Set("Allow", m.method)
	}
	write(w, code(err), f)
}

// perform performs a valid request.
func (s *Server) perform(r *http.Request) (any, error) {
	q, err := find(r.Method, r.URL.EscapedPath())
	if err != nil {
		return nil, err
	}
	if q.method == http.MethodPost && !slices.Equal(r.Header.Values(Header), []string{"1"}) {
		return nil, errHeader
	}
	a, err := q.read(r)
	if err != nil {
		return nil, err
	}
	return q.answer(s, r.Context(), a)
}

// code returns the HTTP status of an error response.
func code(err error) int {
	switch {
	case errors.Is(err, errHeader), errors.Is(err, ErrForbidden):
		return http.StatusForbidden
	case errors.Is(err, ErrNotFound):
		return http.StatusNotFound
	case errors.Is(err, ErrInvalid), errors.Is(err, rollback.ErrOptions):
		return http.StatusBadRequest
	case errors.As(err, new(*methodError)):
		return http.StatusMethodNotAllowed
	case errors.Is(err, rollback.ErrPending), errors.Is(err, rollback.ErrNothing), errors.Is(err, rollback.ErrLate), errors.Is(err, ErrServing), errors.Is(err, ErrProfiling):
		return http.StatusConflict
	case errors.Is(err, rollback.ErrClosed):
		return http.StatusServiceUnavailable
	case errors.As(err, new(*ConfigError)), errors.Is(err, errUnexplained):
		return http.StatusUnprocessableEntity
	default:
		return http.StatusInternalServerError
	}
}

// write writes a response. The client may have closed the connection.
func write(w http.ResponseWriter, code int, v any) {
	w.Header().Set(Header, "1")
	if p, ok := v.(profileBytes); ok {
		w.Header().Set("Content-Type", "application/octet-stream")
		_, _ = w.Write(p) // the client may have closed the connection
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	out := display.NewWriter(w)
	if list, ok := v.(sessionStream); ok {
		list.encode(out)
		return
	}
	_ = newEncoder(out, "").Encode(v)
}

func newEncoder(w io.Writer, prefix string) *json.Encoder {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent(prefix, "  ")
	return e
}

func (s *Server) status(context.Context, *arguments) (any, error) {
	st := s.cfg.Balancer.Status()
	s.fill(&st)
	return st, nil
}

func (s *Server) metrics(context.Context, *arguments) (any, error) {
	if s.cfg.Metrics == nil {
		return nil, fmt.Errorf("metrics: %w", ErrNotFound)
	}
	return s.cfg.Metrics, nil
}

func (s *Server) generations(context.Context, *arguments) (any, error) {
	return s.cfg.Reloader.Generations(), nil
}

func (s *Server) plan(ctx context.Context, a *arguments) (any, error) {
	return s.cfg.Reloader.Plan(ctx, a.config, trusted(ctx))
}

func (s *Server) reload(ctx context.Context, a *arguments) (any, error) {
	return s.cfg.Reloader.Reload(ctx, rollback.Options{Confirm: a.confirm, RollbackIf: a.rollbackIf, By: by})
}

// Outcome is the result of a confirmation or a rollback.
type Outcome struct {
	Generation int `json:"generation"` // in force now
}

func (s *Server) confirm(ctx context.Context, a *arguments) (any, error) {
	n, err := s.cfg.Reloader.Confirm(ctx, a.generation, by)
	return Outcome{n}, err
}

func (s *Server) rollback(ctx context.Context, _ *arguments) (any, error) {
	n, err := s.cfg.Reloader.Rollback(ctx, by)
	return Outcome{n}, err
}

// empty is a response without content.
type empty struct{}

func (s *Server) drain(_ context.Context, a *arguments) (any, error) {
	switch {
	case a.listener != "":
		return empty{}, s.cfg.Balancer.DrainListener(a.listener)
	case a.upstream != "":
		return empty{}, s.cfg.Balancer.DrainEndpoint(a.upstream, a.endpoint, !a.undo)
	}
	s.log.Info("changed by hand", "by", by, "what", "drain", "from", Serving, "to", Draining)
	s.cfg.Stop()
	return empty{}, nil
}

func (s *Server) weight(_ context.Context, a *arguments) (any, error) {
	return empty{}, s.cfg.Balancer.SetWeight(a.upstream, a.endpoint, a.weight)
}

func (s *Server) split(_ context.Context, a *arguments) (any, error) {
	return empty{}, s.cfg.Balancer.SetSplit(a.listener, a.route, a.percent)
}
