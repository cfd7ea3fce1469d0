package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/internal/doctor"
	"github.com/penstock/penstock/proxy/display"
	"github.com/penstock/penstock/proxy/internal/admission"
	"github.com/penstock/penstock/proxy/rollback"
	"github.com/penstock/penstock/proxy/sockopt"
)

// Header must be in every request that changes something. A page of another site in a browser cannot set it without a
// preflight request, which is refused. Every response has it too.
const Header = "Penstock-Admin"

// A failure is the body of an error response.
type failure struct {
	Error   string `json:"error"`             // error in one line
	Details string `json:"details,omitempty"` // more lines, for people
}

// local refuses requests over TCP from foreign pages in a browser. Such a request has the origin of another host.
// Without TLS it may also have the name of another host, if the page's site resolves to this machine. Probes may have
// any host or none, as a balancer's checks do: everybody may send them.
func (s *Server) local(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		at, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
		remote := at != nil && at.Network() != "unix"
		if remote && foreign(r) {
			write(w, http.StatusForbidden, failure{Error: fmt.Sprintf("the request comes from a page of another site, and only pages of %q may send requests: leave the header Origin out", r.Host)})
			return
		}
		if remote && r.TLS == nil && !sockopt.Loopback(r.Host) && !isProbe(r) {
			write(w, http.StatusForbidden, failure{Error: fmt.Sprintf("host %q is neither a loopback address nor localhost: write http://localhost, or another loopback address", r.Host)})
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isProbe reports whether everybody may send the request.
func isProbe(r *http.Request) bool {
	return slices.ContainsFunc(requests, func(q request) bool { return q.role == anybody && q.method == r.Method && q.path == r.URL.Path })
}

// foreign reports whether a page of another host has made the request.
func foreign(r *http.Request) bool {
	return slices.ContainsFunc(r.Header.Values("Origin"), func(origin string) bool {
		u, err := url.Parse(origin)
		return err != nil || !strings.EqualFold(u.Host, r.Host)
	})
}

// errHeader is the error for a request that a page in a browser could have sent.
var errHeader = errors.New("the header " + Header + ": 1 is missing: add it to the request. A page in a browser cannot send this header, so the header shows that no page sends the request")

// errClosed is the error for a change that a client has given up, for example because the process was stopped for a while.
var errClosed = errors.New("the client has closed the connection before its request was read: nothing was changed")

// ErrStarting is the answer to every request until the process has opened its listeners.
var ErrStarting = errors.New("the process is starting, and has not opened its listeners yet: try again")

func (s *Server) respond(w http.ResponseWriter, r *http.Request) {
	v, err := s.perform(r)
	if admission.Displaced(r) {
		v, err = nil, admission.ErrDisplaced
	}
	if page, ok := v.(http.Handler); ok && err == nil {
		w.Header().Set(Header, "1")
		page.ServeHTTP(w, r)
		return
	}
	if err == nil {
		s.write(w, r, v)
		return
	}
	s.refuse(w, r, err)
}

// refuse answers a request that is not performed.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, err error) {
	if c, ok := errors.AsType[*ConfigError](err); ok && !callerOf(r).trusted {
		err = c.redacted()
	}
	f := failure{Error: strings.ReplaceAll(err.Error(), "\n", "; ")} // joined errors have several lines
	if errors.Is(err, rollback.ErrOptions) {
		f.Error = strings.ReplaceAll(f.Error, "rollback-if", "rollback_if")
	}
	if c, ok := errors.AsType[*ConfigError](err); ok {
		f.Details = c.Text
	}
	if m, ok := errors.AsType[*methodError](err); ok {
		w.Header().Set("Allow", m.method)
	}
	if errors.Is(err, admission.ErrBusy) {
		w.Header().Set("Retry-After", "1")
	}
	if code(err) == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
		s.guesses.note(s.log, r.RemoteAddr, err, time.Now())
	}
	write(w, code(err), f)
}

// startingWait is how long a request waits for a starting process. Most processes start faster.
const startingWait = time.Second

// opened reports whether the process has opened everything.
func (s *Server) opened() bool {
	select {
	case <-s.cfg.Opened:
		return true
	default:
		return s.cfg.Opened == nil
	}
}

// awaitOpened waits until the process has opened everything.
func (s *Server) awaitOpened(ctx context.Context) error {
	if s.opened() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, startingWait)
	defer cancel()
	select {
	case <-s.cfg.Opened:
		return nil
	case <-ctx.Done():
		return ErrStarting
	}
}

func (s *Server) perform(r *http.Request) (any, error) {
	q, err := find(r.Method, r.URL.EscapedPath())
	if err != nil {
		return nil, err
	}
	from := callerOf(r)
	conn := admission.Of(r)
	conn.Known(from.rank())
	if err := from.permit(q.role); err != nil {
		return nil, err
	}
	a, malformed := q.read(r)
	if q.role != anybody {
		if err := conn.Begin(r.Context(), s.kind(q, a)); err != nil {
			return nil, err
		}
	}
	if err := s.awaitOpened(r.Context()); err != nil {
		return nil, err
	}
	if q.method == http.MethodPost && !slices.Equal(r.Header.Values(Header), []string{"1"}) {
		return nil, errHeader
	}
	if malformed != nil {
		return nil, malformed
	}
	if q.method == http.MethodPost && conn.Left() { // the client was told that nothing has happened
		return nil, errClosed
	}
	a.by, a.trusted = from.name, from.trusted
	return q.answer(s, r.Context(), a)
}

// kind returns the kind of a request. a is nil if its arguments are malformed.
func (s *Server) kind(q *request, a *arguments) admission.Kind {
	switch {
	case a == nil:
	case q.path == "/v1/why" && argument[time.Duration](a, "for") > 0:
		return admission.Look
	case q.path == "/v1/profile":
		return admission.Profile
	case q.path == "/v1/events":
		return admission.Stream
	case q.path == "/metrics":
		return admission.Scrape
	case q.path == "/v1/status" && s.long.Load():
		return admission.Answer
	}
	return admission.Short
}

// longResponse is the length in bytes from which a status is a long answer.
const longResponse = 256 << 10

// write writes the response to a request that was performed. A status is written at once, and write remembers its
// length.
func (s *Server) write(w http.ResponseWriter, r *http.Request, v any) {
	if _, ok := v.(Status); ok {
		w = &measuredWriter{w, &s.long}
	}
	write(w, http.StatusOK, v)
}

// A measuredWriter notes whether a write was long.
type measuredWriter struct {
	http.ResponseWriter
	long *atomic.Bool
}

func (w *measuredWriter) Write(p []byte) (int, error) {
	w.long.Store(len(p) >= longResponse)
	return w.ResponseWriter.Write(p)
}

// code returns the HTTP status of an error response.
func code(err error) int {
	var denied *accessError
	switch {
	case errors.As(err, &denied):
		return denied.code
	case errors.Is(err, errHeader), errors.Is(err, ErrForbidden):
		return http.StatusForbidden
	case errors.Is(err, ErrNotFound):
		return http.StatusNotFound
	case errors.Is(err, ErrInvalid), errors.Is(err, rollback.ErrOptions):
		return http.StatusBadRequest
	case errors.As(err, new(*methodError)):
		return http.StatusMethodNotAllowed
	case errors.Is(err, rollback.ErrPending), errors.Is(err, rollback.ErrNothing), errors.Is(err, rollback.ErrLate), errors.Is(err, ErrServing), errors.Is(err, ErrLeft), errors.Is(err, ErrEndings):
		return http.StatusConflict
	case errors.Is(err, rollback.ErrClosed), errors.Is(err, admission.ErrBusy), errors.Is(err, ErrStarting):
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
	if list, ok := v.(sessionStream); ok {
		list.encode(w)
		return
	}
	encode(display.NewWriter(w), filled(v))
}

// maxIndented is the length in bytes up to which an answer is indented: half of an indented answer with 20,000
// endpoints would be spaces.
const maxIndented = 1 << 20

// encode writes an answer. It indents the answer for people, unless it is long.
func encode(out io.Writer, v any) {
	var compact, indented bytes.Buffer
	e := json.NewEncoder(&compact)
	e.SetEscapeHTML(false)
	text := &compact
	if e.Encode(v) == nil && compact.Len() < maxIndented && json.Indent(&indented, compact.Bytes(), "", "  ") == nil {
		text = &indented
	}
	_, _ = out.Write(text.Bytes()) // the client may have closed the connection
}

func (s *Server) status(context.Context, *arguments) (any, error) {
	return s.current(), nil
}

func (s *Server) metrics(context.Context, *arguments) (any, error) {
	if s.cfg.Metrics == nil {
		return nil, fmt.Errorf("metrics: %w", ErrNotFound)
	}
	return s.cfg.Metrics, nil
}

func (s *Server) page(context.Context, *arguments) (any, error) {
	if s.cfg.Page == nil {
		return nil, fmt.Errorf("page: %w", ErrNotFound)
	}
	return s.cfg.Page, nil
}

// Outcome is the result of a confirmation.
type Outcome struct {
	Generation int `json:"generation"` // generation in force now
}

func (s *Server) confirm(ctx context.Context, a *arguments) (any, error) {
	n, err := s.cfg.Reloader.Confirm(ctx, argument[int](a, "generation"), a.by)
	return Outcome{n}, err
}

// empty is a response without content.
type empty struct{}

func (s *Server) drain(_ context.Context, a *arguments) (any, error) {
	before := s.cfg.Balancer.Status().State
	if _, leaves := s.leaving(); !s.drained.Swap(true) && !leaves && before != Draining {
		s.log.Info("changed by hand", "by", a.by, "what", "drain", "from", Serving, "to", Draining)
	}
	s.cfg.Stop()
	return empty{}, nil
}

// Changed is the answer to a change by hand.
type Changed struct {
	Changed bool `json:"changed"` // false if nothing had to be changed
	// Unkept says why the change is lost at a restart. Left out if nothing is lost.
	Unkept string `json:"unkept,omitempty"`
}

// A ListenerDrained is the answer to the drain of a listener.
type ListenerDrained struct {
	Changed  bool  `json:"changed"`  // false if the listener was already drained
	Sessions int64 `json:"sessions"` // remaining sessions of the listener
	// Until is when the last of these sessions is reset. Left out if they are already being reset, or there is none.
	Until time.Time `json:"until,omitzero"`
	// Unkept says why the drain is lost at a restart. Left out if it is kept.
	Unkept string `json:"unkept,omitempty"`
}

func (s *Server) readyListener(ctx context.Context, a *arguments) (any, error) {
	return s.cfg.Balancer.ReadyListener(ctx, a.text("listener"), a.by)
}

func (s *Server) setSplit(_ context.Context, a *arguments) (any, error) {
	return s.cfg.Balancer.SetSplit(a.text("listener"), argument[int](a, "route"), argument[map[string]float64](a, "percent"), a.by)
}

// filled returns a copy of an answer with empty lists and maps in place of nil ones, so that JSON has no null. Members
// that are left out when they are empty stay so. The answer itself does not change.
func filled(v any) any {
	if v == nil {
		return nil
	}
	return fill(reflect.ValueOf(v)).Interface()
}

func fill(v reflect.Value) reflect.Value {
	if !mayLack(v.Type()) {
		return v
	}
	switch v.Kind() {
	case reflect.Slice:
		return fillList(v)
	case reflect.Map:
		return fillMap(v)
	case reflect.Struct:
		return fillStruct(v)
	}
	if v.IsNil() { // a pointer or an interface
		return v
	}
	to := reflect.New(v.Elem().Type())
	to.Elem().Set(fill(v.Elem()))
	if v.Kind() == reflect.Interface {
		return to.Elem()
	}
	return to
}

func fillList(v reflect.Value) reflect.Value {
	if !v.IsNil() && !mayLack(v.Type().Elem()) {
		return v
	}
	list := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
	for i := range v.Len() {
		list.Index(i).Set(fill(v.Index(i)))
	}
	return list
}

func fillMap(v reflect.Value) reflect.Value {
	if !v.IsNil() && !mayLack(v.Type().Elem()) {
		return v
	}
	m := reflect.MakeMapWithSize(v.Type(), v.Len())
	for key, value := range v.Seq2() {
		m.SetMapIndex(key, fill(value))
	}
	return m
}

func fillStruct(v reflect.Value) reflect.Value {
	to := reflect.New(v.Type()).Elem()
	to.Set(v)
	for i := range v.NumField() {
		field := v.Type().Field(i)
		if !field.IsExported() || omitted(field) && v.Field(i).IsZero() {
			continue
		}
		to.Field(i).Set(fill(v.Field(i)))
	}
	return to
}

// omitted reports whether an empty field is left out.
func omitted(f reflect.StructField) bool {
	_, options, _ := strings.Cut(f.Tag.Get("json"), ",")
	return options == "omitempty" || options == "omitzero"
}

// lacking caches the results of mayLack by reflect.Type.
var lacking sync.Map

// mayLack reports whether a value of a type may contain a nil list or map that is not left out.
func mayLack(t reflect.Type) bool {
	if known, ok := lacking.Load(t); ok {
		return known.(bool)
	}
	lacks := findLack(t)
	lacking.Store(t, lacks)
	return lacks
}

func findLack(t reflect.Type) bool {
	if t.Implements(reflect.TypeFor[json.Marshaler]()) {
		return false
	}
	switch t.Kind() {
	case reflect.Slice, reflect.Map, reflect.Interface:
		return true
	case reflect.Pointer:
		return mayLack(t.Elem())
	case reflect.Struct:
		for f := range t.Fields() {
			if f.IsExported() && (omitted(f) && holdsLack(f.Type) || !omitted(f) && mayLack(f.Type)) {
				return true
			}
		}
	}
	return false
}

// holdsLack is mayLack for a type that is left out when it is nil.
func holdsLack(t reflect.Type) bool {
	if t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		return mayLack(t.Elem())
	}
	return mayLack(t)
}

// An errorLog logs the errors of net/http. Errors of clients' handshakes are logged for debugging, since clients can
// cause any number of them, and other errors as warnings.
type errorLog struct{ log *slog.Logger }

func (l *errorLog) Write(line []byte) (int, error) {
	text := strings.TrimSpace(string(line))
	if strings.Contains(text, "TLS handshake error") {
		l.log.Debug(text)
	} else {
		l.log.Warn(text)
	}
	return len(line), nil
}

// aliveTime is how long the loops may take to respond to a probe.
const aliveTime = 2 * time.Second

type probe struct{ problem string }

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

// livez handles GET /livez. The process is alive if every loop responds.
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

// readyz handles GET /readyz. The process is ready until it is about to drain.
func (s *Server) readyz(context.Context, *arguments) (any, error) {
	switch starts, leaves := s.leaving(); {
	case leaves && time.Now().Before(starts):
		return probe{"the process is about to drain, and accepts clients until then"}, nil
	case leaves || s.cfg.Leaving == nil && s.cfg.Balancer.Status().State == Draining:
		return probe{"the process drains"}, nil
	}
	return probe{}, nil
}

// leaving reports whether the process drains or is about to, and when the drain begins.
func (s *Server) leaving() (starts time.Time, leaves bool) {
	if s.cfg.Leaving == nil {
		return starts, false
	}
	return s.cfg.Leaving()
}

func (s *Server) process(context.Context, *arguments) (any, error) {
	if s.cfg.Process == nil {
		return nil, fmt.Errorf("process: %w", ErrNotFound)
	}
	return s.cfg.Process(), nil
}

// Process returns the report about what limits the process.
func (c *Client) Process(ctx context.Context) (doctor.Report, error) {
	return get[doctor.Report](ctx, c, "/v1/process")
}

// MaxProfile is the longest CPU profile, in seconds.
const MaxProfile = 60

// profileBytes is a compressed profile in the format of pprof.
type profileBytes []byte

// profile takes a CPU profile of this process, with 100 samples per second of CPU time (runtime/pprof). It ends early
// if its client disconnects.
func (s *Server) profile(ctx context.Context, a *arguments) (any, error) {
	s.profiling.Lock() // if this request took the place of another profile, that one ends at once
	defer s.profiling.Unlock()
	var out bytes.Buffer
	stop, err := s.sample(&out)
	if err != nil {
		return nil, fmt.Errorf("the process is already taking another profile: %w: %w", admission.ErrBusy, err)
	}
	timer := time.NewTimer(time.Duration(argument[int](a, "seconds")) * time.Second)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	stop()
	return profileBytes(out.Bytes()), nil
}

// sampleCPU starts a CPU profile. stop ends it.
func sampleCPU(to io.Writer) (stop func(), err error) {
	return pprof.StopCPUProfile, pprof.StartCPUProfile(to)
}

// Profile takes a CPU profile of the process for 1 to [MaxProfile] seconds, and returns it in the format of pprof.
func (c *Client) Profile(ctx context.Context, seconds int) ([]byte, error) {
	return get[[]byte](ctx, c, "/v1/profile", "seconds", fmt.Sprint(seconds))
}
