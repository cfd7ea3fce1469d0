package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock/penstock/proxy/generation"
	"github.com/penstock/penstock/proxy/socket"
)

// Header must be in every request that changes something. A page of another site that a
// browser shows cannot set it without asking first, which is not answered.
const Header = "Penstock-Admin"

// by is who asks, for those whom a change is told.
const by = "admin"

// A failure is what is answered with an error.
type failure struct {
	Error   string `json:"error"`             // one line
	Details string `json:"details,omitempty"` // lines to read
}

// answer is what has become of a request: a value to be written as JSON, or an error.
type answer func(r *http.Request, q url.Values) (any, error)

// handler returns what answers requests.
func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	get := func(path string, a answer) { mux.HandleFunc("GET "+path, respond(a)) }
	post := func(path string, a answer, parameters ...string) {
		mux.HandleFunc("POST "+path, respond(changing(a, parameters)))
	}
	get("/status", s.status)
	get("/generations", func(*http.Request, url.Values) (any, error) { return s.cfg.Reloader.Generations(), nil })
	post("/plan", s.plan, "config") // which changes nothing, but opens files
	post("/reload", s.reload, "confirm", "rollback_if")
	post("/confirm", s.confirm)
	post("/rollback", s.rollback)
	post("/drain", s.drain, "listener", "upstream", "endpoint", "undo")
	post("/weight", s.weight, "upstream", "endpoint", "weight")
	post("/split", s.split, "listener", "route", "percent")
	return welcomed(s.local(mux))
}

// local refuses requests that come by TCP with the name of another host: of a page whose
// site's name leads to this machine.
func (s *Server) local(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		at, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
		if at != nil && at.Network() != "unix" && !socket.Loopback(r.Host) {
			write(w, http.StatusForbidden, failure{Error: "the host must be a loopback address or localhost"})
			return
		}
		next.ServeHTTP(w, r)
	})
}

// changing is an answer to a request that changes something: nothing that it says may go
// unheard.
func changing(a answer, parameters []string) answer {
	return func(r *http.Request, q url.Values) (any, error) {
		if r.Header.Get(Header) == "" {
			return nil, errHeader
		}
		for name, values := range q {
			if !slices.Contains(parameters, name) {
				return nil, fmt.Errorf("%w: there is no parameter %q here: write %s", ErrInvalid, name, cmp.Or(strings.Join(parameters, ", "), "none"))
			}
			if len(values) > 1 && name != "percent" {
				return nil, fmt.Errorf("%w: %s: write it once", ErrInvalid, name)
			}
		}
		return a(r, q)
	}
}

var errHeader = errors.New("the header is missing that says that no browser sent this: " + Header + ": 1")

// respond makes a handler of an answer.
func respond(a answer) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		q, err := url.ParseQuery(r.URL.RawQuery)
		if err != nil {
			write(w, http.StatusBadRequest, failure{Error: "invalid query: " + err.Error()})
			return
		}
		v, err := a(r, q)
		if err != nil {
			f := failure{Error: strings.ReplaceAll(err.Error(), "\n", "; ")} // joined errors have lines
			if c, ok := errors.AsType[*ConfigError](err); ok {
				f.Details = c.Text
			}
			write(w, code(err), f)
			return
		}
		write(w, http.StatusOK, v)
	}
}

// code is the status of an answer that is an error.
func code(err error) int {
	switch {
	case errors.Is(err, errHeader):
		return http.StatusForbidden
	case errors.Is(err, ErrNotFound):
		return http.StatusNotFound
	case errors.Is(err, ErrInvalid), errors.Is(err, generation.ErrOptions):
		return http.StatusBadRequest
	case errors.Is(err, generation.ErrPending), errors.Is(err, generation.ErrNothing):
		return http.StatusConflict
	case errors.Is(err, generation.ErrClosed):
		return http.StatusServiceUnavailable
	case errors.As(err, new(*ConfigError)):
		return http.StatusUnprocessableEntity
	default:
		return http.StatusInternalServerError
	}
}

// write writes an answer. Who asked may have gone.
func write(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	_ = e.Encode(v)
}

func (s *Server) status(*http.Request, url.Values) (any, error) {
	st := s.cfg.Balancer.Status()
	s.fill(&st)
	return st, nil
}

func (s *Server) plan(r *http.Request, q url.Values) (any, error) {
	return s.cfg.Reloader.Plan(r.Context(), q.Get("config"))
}

func (s *Server) reload(r *http.Request, q url.Values) (any, error) {
	o := generation.Options{RollbackIf: q.Get("rollback_if"), By: by}
	if text := q.Get("confirm"); text != "" {
		var err error
		if o.Confirm, err = time.ParseDuration(text); err != nil || o.Confirm <= 0 {
			return nil, fmt.Errorf("%w: confirm: %q is not a time: write 30s or 2m", ErrInvalid, text)
		}
	}
	return s.cfg.Reloader.Reload(r.Context(), o)
}

// Settled is what has become of a confirmation or a rollback.
type Settled struct {
	Generation int `json:"generation"` // in force now
}

func settle(r *http.Request, f func(context.Context, string) (int, error)) (any, error) {
	n, err := f(r.Context(), by)
	return Settled{n}, err
}

func (s *Server) confirm(r *http.Request, _ url.Values) (any, error) {
	return settle(r, s.cfg.Reloader.Confirm)
}

func (s *Server) rollback(r *http.Request, _ url.Values) (any, error) {
	return settle(r, s.cfg.Reloader.Rollback)
}

// done is the answer to a request that tells nothing.
type done struct{}

func (s *Server) drain(_ *http.Request, q url.Values) (any, error) {
	name, upstream, endpoint, undo := q.Get("listener"), q.Get("upstream"), q.Get("endpoint"), q.Has("undo")
	switch {
	case name == "" && upstream == "" && endpoint == "" && !undo:
		s.log.Info("changed by hand", "by", by, "what", "drain", "from", Serving, "to", Draining)
		s.cfg.Stop()
		return done{}, nil
	case name != "" && upstream == "" && endpoint == "" && !undo:
		return done{}, s.cfg.Balancer.DrainListener(name)
	case name == "" && upstream != "" && endpoint != "":
		return done{}, s.cfg.Balancer.DrainEndpoint(upstream, endpoint, !undo)
	case undo:
		return nil, fmt.Errorf("%w: only an endpoint's drain can be undone: write upstream and endpoint; a listener comes back by a reload", ErrInvalid)
	default:
		return nil, fmt.Errorf("%w: write listener, or upstream and endpoint, or nothing for the process", ErrInvalid)
	}
}

func (s *Server) weight(_ *http.Request, q url.Values) (any, error) {
	weight, err := strconv.Atoi(q.Get("weight"))
	if err != nil || weight < 0 {
		return nil, fmt.Errorf("%w: weight: %q is not a weight: write 0 or more", ErrInvalid, q.Get("weight"))
	}
	if !q.Has("upstream") || !q.Has("endpoint") {
		return nil, fmt.Errorf("%w: write upstream and endpoint", ErrInvalid)
	}
	return done{}, s.cfg.Balancer.SetWeight(q.Get("upstream"), q.Get("endpoint"), weight)
}

func (s *Server) split(_ *http.Request, q url.Values) (any, error) {
	route, err := strconv.Atoi(q.Get("route"))
	if err != nil || route < 0 {
		return nil, fmt.Errorf("%w: route: %q is not the number of a route: write 0 for the first", ErrInvalid, q.Get("route"))
	}
	percent, err := ParsePercent(q["percent"])
	if err != nil {
		return nil, err
	}
	return done{}, s.cfg.Balancer.SetSplit(q.Get("listener"), route, percent)
}
