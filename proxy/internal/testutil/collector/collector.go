// Package collector is a receiver of OpenTelemetry's traces for tests: on gRPC's own server, or on
// package http's, with the messages of go.opentelemetry.io/proto/otlp. It can be stopped,
// started again, slow, and it can refuse.
package collector

import (
	"compress/gzip"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	coltrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	resource "go.opentelemetry.io/proto/otlp/resource/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	_ "google.golang.org/grpc/encoding/gzip" // requests may be compressed
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// A Collector receives spans. Make it with [Start]. It is safe for concurrent use.
type Collector struct {
	coltrace.UnimplementedTraceServiceServer
	URL string

	t        testing.TB
	protocol string
	tls      *tls.Config
	address  string

	mu        sync.Mutex
	seen      map[[24]byte]bool // trace and span
	countOnly bool
	stop      func(gracefully bool) // nil: it does not run
	spans     []*trace.Span
	resources []*resource.Resource
	headers   []http.Header
	requests  int
	answer    func(request int, spans int) Answer
}

// An Answer is how a request is answered. The zero value is success.
type Answer struct {
	Delay    time.Duration
	Code     int   // of HTTP, such as 503, or of gRPC; 0: success
	Lost     bool  // the spans were taken, and no answer comes until the client gives up
	Rejected int64 // spans of a partial success
	// Retry is the time after which the client may try again; 0: it is not said.
	Retry time.Duration
}

// Start starts a collector for grpc or http/protobuf, until the end of the test. tls may be nil.
func Start(t testing.TB, protocol string, config *tls.Config) *Collector {
	t.Helper()
	c := &Collector{t: t, protocol: protocol, tls: config, address: "127.0.0.1:0"}
	c.Restart()
	c.URL = "http://" + c.address
	if config != nil {
		c.URL = "https://" + c.address
	}
	t.Cleanup(func() { c.Stop(false) })
	return c
}

// Restart starts it again, at the same address.
func (c *Collector) Restart() {
	c.t.Helper()
	l, err := net.Listen("tcp", c.address)
	if err != nil {
		c.t.Fatal(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.address = l.Addr().String()
	if c.protocol == "grpc" {
		c.stop = c.serveGRPC(l)
	} else {
		c.stop = c.serveHTTP(l)
	}
}

// Stop stops it. Gracefully, requests under way are answered first.
func (c *Collector) Stop(gracefully bool) {
	c.mu.Lock()
	stop := c.stop
	c.stop = nil
	c.mu.Unlock()
	if stop != nil {
		stop(gracefully)
	}
}

func (c *Collector) serveGRPC(l net.Listener) func(bool) {
	var options []grpc.ServerOption
	if c.tls != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(c.tls)))
	}
	s := grpc.NewServer(options...)
	coltrace.RegisterTraceServiceServer(s, c)
	served := make(chan struct{})
	go func() { defer close(served); _ = s.Serve(l) }()
	return func(gracefully bool) {
		if gracefully {
			s.GracefulStop()
		} else {
			s.Stop()
		}
		<-served
	}
}

func (c *Collector) serveHTTP(l net.Listener) func(bool) {
	if c.tls != nil {
		own := c.tls.Clone()
		own.NextProtos = []string{"h2", "http/1.1"}
		l = tls.NewListener(l, own)
	}
	s := &http.Server{Handler: http.HandlerFunc(c.serve)}
	served := make(chan struct{})
	go func() { defer close(served); _ = s.Serve(l) }()
	return func(gracefully bool) {
		if gracefully {
			_ = s.Shutdown(context.Background())
		} else {
			_ = s.Close()
		}
		<-served
	}
}

// Answer sets the function that answers requests. It gets their number, from 1 on, and their
// spans; nil: all are successful.
func (c *Collector) Answer(answer func(request, spans int) Answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answer = answer
}

// take takes the spans of a request, unless it is refused.
func (c *Collector) take(ctx context.Context, header http.Header, r *coltrace.ExportTraceServiceRequest) Answer {
	var spans []*trace.Span
	var resources []*resource.Resource
	for _, rs := range r.ResourceSpans {
		resources = append(resources, rs.Resource)
		for _, ss := range rs.ScopeSpans {
			spans = append(spans, ss.Spans...)
		}
	}
	a := c.note(header, spans, resources)
	if a.Lost {
		<-ctx.Done()
	} else if a.Delay > 0 {
		select {
		case <-ctx.Done():
		case <-time.After(a.Delay):
		}
	}
	return a
}

// note decides on a request, and keeps what is taken of it.
func (c *Collector) note(header http.Header, spans []*trace.Span, resources []*resource.Resource) (a Answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests++
	if c.answer != nil {
		a = c.answer(c.requests, len(spans))
	}
	if a.Code != 0 {
		return a
	}
	taken := spans[min(int(a.Rejected), len(spans)):]
	c.count(taken)
	if !c.countOnly {
		c.spans, c.resources, c.headers = append(c.spans, taken...), append(c.resources, resources...), append(c.headers, header)
	}
	return a
}

// count notes which spans were taken.
func (c *Collector) count(spans []*trace.Span) {
	if c.seen == nil {
		c.seen = make(map[[24]byte]bool)
	}
	for _, s := range spans {
		c.seen[[24]byte(append(append(make([]byte, 0, 24), s.TraceId...), s.SpanId...))] = true
	}
}

// CountOnly keeps no further span, except for Distinct: a benchmark has many.
func (c *Collector) CountOnly() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.countOnly = true
}

func (c *Collector) success(a Answer) *coltrace.ExportTraceServiceResponse {
	r := &coltrace.ExportTraceServiceResponse{}
	if a.Rejected > 0 {
		r.PartialSuccess = &coltrace.ExportTracePartialSuccess{RejectedSpans: a.Rejected, ErrorMessage: "some are not welcome"}
	}
	return r
}

// Export implements the service of gRPC.
func (c *Collector) Export(ctx context.Context, r *coltrace.ExportTraceServiceRequest) (*coltrace.ExportTraceServiceResponse, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	header := make(http.Header)
	for key, values := range md {
		header[http.CanonicalHeaderKey(key)] = values
	}
	a := c.take(ctx, header, r)
	if a.Lost { // the client's deadline came with the request, and may have passed here before it has there
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	if a.Code != 0 {
		return nil, retryable(status.New(codes.Code(a.Code), "not now: 100%"), a.Retry)
	}
	return c.success(a), nil
}

// serve is the handler of HTTP.
func (c *Collector) serve(w http.ResponseWriter, q *http.Request) {
	body := io.Reader(q.Body)
	if q.Header.Get("Content-Encoding") == "gzip" {
		unzipped, err := gzip.NewReader(q.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		body = unzipped
	}
	data, err := io.ReadAll(body)
	r := new(coltrace.ExportTraceServiceRequest)
	if err == nil {
		err = proto.Unmarshal(data, r)
	}
	if err != nil || q.URL.Path != "/v1/traces" || q.Header.Get("Content-Type") != "application/x-protobuf" {
		http.Error(w, "no request of OTLP", http.StatusBadRequest)
		return
	}
	a := c.take(q.Context(), q.Header, r)
	if a.Retry > 0 {
		w.Header().Set("Retry-After", "1")
	}
	if a.Code != 0 {
		w.WriteHeader(a.Code)
		return
	}
	answer, _ := proto.Marshal(c.success(a))
	w.Header().Set("Content-Type", "application/x-protobuf")
	_, _ = w.Write(answer)
}

// Spans returns the spans that were taken, in their order; one may be there twice.
func (c *Collector) Spans() []*trace.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]*trace.Span(nil), c.spans...)
}

// Distinct returns how many spans were taken, each counted once.
func (c *Collector) Distinct() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.seen)
}

// Resources returns the resources of the requests.
func (c *Collector) Resources() []*resource.Resource {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]*resource.Resource(nil), c.resources...)
}

// Headers returns the headers of the requests.
func (c *Collector) Headers() []http.Header {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]http.Header(nil), c.headers...)
}

// Requests returns how many came.
func (c *Collector) Requests() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.requests
}
