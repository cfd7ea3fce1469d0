// Package metrics writes the counters of a process as OpenMetrics or in Prometheus's text format. It reads a
// [Sample], which the process fills in for each scrape.
//
// The families go_ and process_ pass a registry of client_golang, which also negotiates the format. Listeners,
// upstreams and endpoints may have hundreds of thousands of series, and the registry takes microseconds for each.
// So an encoder writes all other families, and a test compares its output with client_golang's.
package metrics

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/internal/tally"
	"github.com/penstock/penstock/proxy/internal/verdict"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/common/expfmt"
)

// A Kind is the type of a family.
type Kind string

// The types.
const (
	Counter   Kind = "counter"
	Gauge     Kind = "gauge"
	Histogram Kind = "histogram"
)

// A Family is the series of one name.
type Family struct {
	Name   string
	Kind   Kind
	Labels []string
	Help   string // one line, which explains the labels if necessary
}

// A table is the families of each kind of object.
type table struct {
	process   []objectFamily[Sample]
	loops     []objectFamily[Loop]
	listeners []objectFamily[Listener]
	upstreams []objectFamily[Upstream]
	endpoints []objectFamily[Endpoint]
}

// families returns the table: the families of the status's fields, and then the others.
var families = sync.OnceValue(func() *table {
	return &table{
		process:   append(statusFamilies(func(s *Sample) *admin.Status { return &s.Process.Status }, "penstock_"), processFamilies...),
		loops:     append(statusFamilies(func(l *Loop) *admin.Loop { return &l.Loop }, "penstock_loop_", "loop"), loopFamilies...),
		listeners: append(statusFamilies(func(l *Listener) *admin.Listener { return &l.Listener }, "penstock_listener_", "listener"), listenerFamilies...),
		upstreams: append(statusFamilies(func(u *Upstream) *admin.Upstream { return &u.Upstream }, "penstock_upstream_", "upstream"), upstreamFamilies...),
		endpoints: append(statusFamilies(func(p *Endpoint) *admin.Endpoint { return &p.Endpoint }, "penstock_endpoint_", "upstream", "endpoint"), endpointFamilies...),
	}
})

// Families returns all families of this package, as they are documented. The families of the Go runtime and of the
// process (go_ and process_) come from client_golang.
func Families() []Family {
	t := families()
	return append(slices.Concat(ofEach(t.process), ofEach(t.loops), ofEach(t.listeners), ofEach(t.upstreams), ofEach(t.endpoints)), droppedFamily)
}

func ofEach[T any](families []objectFamily[T]) (list []Family) {
	for i := range families {
		list = append(list, families[i].Family)
	}
	return list
}

func counter(name, help string, labels ...string) Family { return Family{name, Counter, labels, help} }

func gauge(name, help string, labels ...string) Family { return Family{name, Gauge, labels, help} }

func histogram(name, help string, labels ...string) Family {
	return Family{name, Histogram, labels, help}
}

// A Sample holds the counters of a process at one time.
type Sample struct {
	Process   Process
	Config    Config
	Loops     []Loop
	Listeners []Listener
	Upstreams []Upstream
	Endpoints []Endpoint // of all upstreams, in their order
}

// reset empties the sample for another scrape, and keeps its memory.
func (s *Sample) reset() {
	clear(s.Listeners)
	clear(s.Upstreams)
	clear(s.Endpoints)
	*s = Sample{Loops: s.Loops[:0], Listeners: s.Listeners[:0], Upstreams: s.Upstreams[:0], Endpoints: s.Endpoints[:0]}
}

// Process is the status of the process, without its listeners and upstreams.
type Process struct {
	admin.Status
	Refusals []tally.Count // refused clients by reason; reasons that did not occur are 0
}

// A FileState says how the configuration file differs from the running configuration.
type FileState string

// The states of the file.
const (
	FileSame    FileState = "same"    // the running configuration was read from this content
	FileDiffers FileState = "differs" // a reload would change something
	FileInvalid FileState = "invalid" // a reload would be refused
	FileUnknown FileState = "unknown" // it was not read yet, or there is no file
)

// Config is the state of the configuration.
type Config struct {
	Generation       int
	Unconfirmed      bool // a reload waits to be confirmed
	Reloads, Refused int64
	RolledBack       int64
	LastOK           bool      // the last load of a configuration succeeded, even if it was the first
	LastSuccess      time.Time // time of the last load that succeeded
	File             FileState
}

// A Loop holds the counters of an event loop.
type Loop struct {
	admin.Loop
	Measured bool // overruns are measured
}

// Bytes are bytes by direction and engine.
type Bytes = admin.Bytes

// A Listener is the status of a listener, with counters that the status does not have.
type Listener struct {
	admin.Listener
	Refused []tally.Count // by reason; reasons that did not occur are 0
	Tally   tally.Counts
	Seconds [verdict.Kinds]float64 // its sessions' time by verdict
	KeyedBy string                 // the property that Keyed counts by
	Keyed   []Keyed                // sessions by a property of their clients; nil without metrics_by
}

// A Keyed counts the sessions of a listener's clients that have one value of a property.
type Keyed struct {
	Value    string
	Sessions int64
	Bytes    Bytes
}

// An Upstream is the status of an upstream without its endpoints, with counters that the status does not have.
type Upstream struct {
	admin.Upstream
	Refused []tally.Count // by reason; reasons that did not occur are 0
	Tally   tally.Counts
	Seconds [verdict.Kinds]float64 // its sessions' time by verdict
	States  map[admin.State]int64  // number of endpoints
	// FallbackServes says that the fallback, or its own fallback, takes clients; nil: there is no fallback upstream.
	FallbackServes *bool
	Routed         bool // a listener sends clients or copies to it, or to an upstream with this fallback
}

// An Endpoint is the status of an endpoint, with counters that the status does not have.
type Endpoint struct {
	Upstream string
	admin.Endpoint
	Tally       tally.Counts
	Seconds     [verdict.Kinds]float64 // its sessions' time by verdict
	AnswerTimes []int64                // first answers by powers of two of a microsecond
	Answered    time.Duration          // the sum of their times
}

// up reports whether the endpoint gets clients.
func (p *Endpoint) up() bool { return p.State == admin.Up && p.Breaker == "" }

// Limits is how many objects have series. penstock_series_dropped counts the others.
type Limits struct {
	Listeners, Upstreams, Endpoints int
	// EndpointHistograms is how many endpoints have histograms.
	EndpointHistograms int
}

// DefaultLimits are the limits of the program's [Handler].
var DefaultLimits = Limits{Listeners: 5000, Upstreams: 5000, Endpoints: 20_000, EndpointHistograms: 1000}

// maxReading is how many samples are read at once.
const maxReading = 2

// readTime is how long a sample may take. A sample waits for the loops, which count the bytes of a few sessions in each
// turn.
const readTime = 5 * time.Second

// A Handler serves the metrics of a process over HTTP. Make it with [NewHandler].
type Handler struct {
	read    func(*Sample)
	limits  Limits
	reading chan struct{} // one element for each sample that is being read
	samples sync.Pool     // of *Sample
	runtime http.Handler  // of the Go runtime and of the process
}

// NewHandler returns a handler. read fills in an empty sample; it may be called by two goroutines at a
// time.
func NewHandler(read func(*Sample), limits Limits) *Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return &Handler{
		read: read, limits: limits, reading: make(chan struct{}, maxReading),
		samples: sync.Pool{New: func() any { return new(Sample) }},
		runtime: promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true, DisableCompression: true}),
	}
}

var errSlow = errors.New("the event loops did not answer in time")

// ServeHTTP writes the metrics. It holds no lock while it writes. A client that does not read keeps a sample in memory,
// so the HTTP server must limit the number of such clients and their time.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	sample, err := h.sample(r.Context())
	if err != nil {
		w.Header().Set("Retry-After", "1")
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	defer h.done(sample)
	head := h.head(r)
	for name, values := range head.header {
		w.Header()[name] = values
	}
	w.WriteHeader(head.code)
	if r.Method == http.MethodHead || head.code != http.StatusOK {
		return
	}
	_ = h.write(w, sample, head.body.Bytes(), strings.HasPrefix(head.header.Get("Content-Type"), openMetricsType))
}

const openMetricsType = "application/openmetrics-text"

// sample reads a sample. The caller returns it with done.
func (h *Handler) sample(ctx context.Context) (*Sample, error) {
	timer := time.NewTimer(readTime)
	defer timer.Stop()
	select {
	case h.reading <- struct{}{}:
	case <-timer.C:
		return nil, errSlow
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	s := h.samples.Get().(*Sample)
	done := make(chan struct{})
	go func() {
		h.read(s)
		<-h.reading
		close(done)
	}()
	select {
	case <-done:
		return s, nil
	case <-timer.C:
	case <-ctx.Done():
	}
	go func() {
		<-done
		h.done(s)
	}()
	return nil, errSlow
}

func (h *Handler) done(s *Sample) {
	s.reset()
	h.samples.Put(s)
}

// A response is a response in memory.
type response struct {
	header http.Header
	body   bytes.Buffer
	code   int
}

func (r *response) Header() http.Header { return r.header }

func (r *response) WriteHeader(code int) { r.code = code }

func (r *response) Write(p []byte) (int, error) { return r.body.Write(p) }

// head returns promhttp's response, which has only the series of the Go runtime and of the process.
func (h *Handler) head(r *http.Request) *response {
	r = r.Clone(r.Context())
	if f := expfmt.NegotiateAccept(r.Header, expfmt.DefaultOpenMetricsAcceptedFormats()...).FormatType(); f != expfmt.TypeOpenMetrics && f != expfmt.TypeTextPlain {
		r.Header.Set("Accept", "text/plain") // the encoder writes no other format
	}
	got := &response{header: make(http.Header), code: http.StatusOK}
	h.runtime.ServeHTTP(got, r)
	return got
}

// eof is the last line of OpenMetrics.
const eof = "# EOF\n"

// write writes the series of the Go runtime, then all others.
func (h *Handler) write(to io.Writer, s *Sample, runtime []byte, openMetrics bool) error {
	e := &encoder{to: to, buf: make([]byte, 0, flushAt+4<<10), openMetrics: openMetrics, made: make(map[[2]string]string)}
	e.buf = append(e.buf, bytes.TrimSuffix(runtime, []byte(eof))...)
	dropped := h.limits.cut(s)
	all := families()
	encode(e, all.process, []Sample{*s}, func(int) string { return "" })
	encode(e, all.loops, s.Loops, func(i int) string { return firstLabel("loop", strconv.Itoa(i)) })
	encode(e, all.listeners, s.Listeners, func(i int) string { return firstLabel("listener", s.Listeners[i].Name) })
	encode(e, all.upstreams, s.Upstreams, func(i int) string { return firstLabel("upstream", s.Upstreams[i].Name) })
	labels := func(i int) string {
		return firstLabel("upstream", s.Endpoints[i].Upstream) + label("endpoint", s.Endpoints[i].Name)
	}
	histograms := len(all.endpoints) - 3
	encode(e, all.endpoints[:histograms], s.Endpoints, labels)
	encode(e, all.endpoints[histograms:], s.Endpoints[:min(len(s.Endpoints), h.limits.EndpointHistograms)], labels)
	e.begin(&droppedFamily)
	for _, d := range dropped {
		e.labels = firstLabel("of", d.of)
		e.int("", int64(d.n))
	}
	if openMetrics {
		e.buf = append(e.buf, eof...)
	}
	e.flush()
	return e.err
}

var droppedFamily = gauge("penstock_series_dropped", "Objects without series, because there are too many. endpoint_histograms means endpoints without histograms.", "of")

type dropped struct {
	of string
	n  int
}

// cut leaves out the objects beyond the limits, and gives the others their labels.
func (l *Limits) cut(s *Sample) []dropped {
	list := []dropped{
		{"listeners", max(len(s.Listeners)-l.Listeners, 0)},
		{"upstreams", max(len(s.Upstreams)-l.Upstreams, 0)},
		{"endpoints", max(len(s.Endpoints)-l.Endpoints, 0)},
		{"endpoint_histograms", max(len(s.Endpoints)-l.EndpointHistograms, 0)},
	}
	s.Listeners = s.Listeners[:len(s.Listeners)-list[0].n]
	s.Upstreams = s.Upstreams[:len(s.Upstreams)-list[1].n]
	s.Endpoints = s.Endpoints[:len(s.Endpoints)-list[2].n]
	return list
}

// encode writes the families of some objects, unless an earlier write failed. labels returns the first labels of an
// object by its index.
func encode[T any](e *encoder, families []objectFamily[T], of []T, labels func(i int) string) {
	made := make([]string, len(of))
	for i := range made {
		made[i] = labels(i)
	}
	for i := range families {
		if e.err != nil {
			return
		}
		e.begin(&families[i].Family)
		for j := range of {
			e.labels = made[j]
			families[i].write(e, &of[j])
		}
	}
}
