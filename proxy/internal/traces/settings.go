package traces

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/proxy/display"
	"github.com/penstock/penstock/proxy/internal/record"
	"github.com/penstock/penstock/proxy/sockopt"
)

// The protocols, by their names in OTEL_EXPORTER_OTLP_PROTOCOL.
const (
	GRPC = "grpc"
	HTTP = "http/protobuf"
)

// Settings say which sessions are sampled, and where spans go. They do not change once an [Exporter] has
// them.
type Settings struct {
	// Endpoint is a URL with the scheme http or https, and Protocol one of the constants.
	Endpoint *url.URL
	Protocol string
	// Ratio is the part of the sessions that is sampled, in 0..1.
	Ratio float64
	// Headers are sent with each request, such as a token.
	Headers http.Header
	// TLS is that of https; nil: the system's authorities.
	TLS *tls.Config
	// Gzip has requests compressed.
	Gzip bool

	// Queue is how many spans wait at most, those under way included; Batch is how many are sent
	// at once at most, and Delay for how long one waits for others.
	Queue, Batch int
	Delay        time.Duration
	// Timeout bounds an attempt, Retry the time in which a batch is tried again, and Flush the
	// last export.
	Timeout, Retry, Flush time.Duration

	// Resource describes this process.
	Resource []Attribute
	// Version is that of the program.
	Version string

	head   []byte // of a request, up to the spans
	client *http.Client
	last   *atomic.Pointer[net.Conn] // the connection, which client owns; nil: none
}

// An Attribute is one of a resource.
type Attribute struct{ Key, Value string }

// tracesPath is where OTLP over HTTP goes, unless the URL has a path.
const tracesPath = "/v1/traces"

// grpcPath is the method of OTLP over gRPC.
const grpcPath = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"

// Open makes the connections' settings. The caller calls Discard unless an [Exporter] gets them.
func (s *Settings) Open() error {
	to := *s.Endpoint
	switch {
	case to.Scheme != "http" && to.Scheme != "https" || to.Host == "":
		return fmt.Errorf("traces: endpoint %q: no URL of a collector", s.Endpoint)
	case s.Queue <= 0 || s.Batch <= 0:
		return errors.New("traces: no room for spans")
	case s.Protocol == GRPC:
		to.Path = grpcPath
	case to.Path == "" || to.Path == "/":
		to.Path = tracesPath
	}
	s.Endpoint = &to
	s.last = new(atomic.Pointer[net.Conn])
	s.client = &http.Client{Transport: s.transport(), CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	s.head = s.appendResource(nil)
	return nil
}

// cut closes the connection, of which there is one at a time. After a request without an answer the transport would use it
// again: it counts as busy for a moment longer, and is not idle then.
func (s *Settings) cut() {
	if conn := s.last.Swap(nil); conn != nil {
		_ = (*conn).Close() // the transport closes it as well
	}
}

// Discard closes connections that rest.
func (s *Settings) Discard() { s.client.CloseIdleConnections() }

// transport returns a transport that uses no proxy, and so no variable of the environment.
func (s *Settings) transport() *http.Transport {
	dialer := &net.Dialer{Timeout: s.Timeout}
	t := &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := sockopt.Dial(ctx, dialer, network, address)
			if err == nil {
				s.last.Store(&conn)
			}
			return conn, err
		},
		TLSClientConfig: s.TLS, TLSHandshakeTimeout: s.Timeout, DisableCompression: true,
		MaxConnsPerHost: 1, IdleConnTimeout: 90 * time.Second, Protocols: new(http.Protocols),
	}
	switch {
	case s.Protocol != GRPC:
		t.Protocols.SetHTTP1(true)
		t.Protocols.SetHTTP2(s.Endpoint.Scheme == "https")
	case s.Endpoint.Scheme == "https":
		t.Protocols.SetHTTP2(true)
	default:
		t.Protocols.SetUnencryptedHTTP2(true)
	}
	return t
}

// schema is the version of the semantic conventions that attributes follow.
const schema = "https://opentelemetry.io/schemas/1.37.0"

// instanceID is that of this process.
var instanceID = instance(record.NewIDs().Of(1))

// appendResource appends the resource of a request: ResourceSpans, whose length is not known
// yet, begin after it.
func (s *Settings) appendResource(b []byte) []byte {
	m := &message{b}
	at := m.open(resourceSpansResource)
	a := attributes{m, resourceAttributes}
	given := make(map[string]bool, len(s.Resource))
	for _, v := range s.Resource {
		given[v.Key] = true
		a.text(v.Key, v.Value)
	}
	for _, v := range s.own() {
		if !given[v.Key] {
			a.text(v.Key, v.Value)
		}
	}
	if !given["process.pid"] {
		a.integer("process.pid", int64(os.Getpid()))
	}
	m.close(at)
	m.string(resourceSpansSchema, schema)
	return m.b
}

// own are the attributes of the resource unless the settings have others.
func (s *Settings) own() []Attribute {
	list := []Attribute{{"service.name", "penstock"}, {"service.version", s.Version}, {"service.instance.id", instanceID}}
	if host, err := os.Hostname(); err == nil {
		list = append(list, Attribute{"host.name", host})
	}
	if exe, err := os.Executable(); err == nil {
		list = append(list, Attribute{"process.executable.name", filepath.Base(exe)})
	}
	return list
}

// request returns the request of a batch.
func (s *Settings) request(ctx context.Context, body []byte) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.Endpoint.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.GetBody = nil // so that nothing is sent twice unnoticed
	for key, values := range s.Headers {
		r.Header[key] = values
	}
	r.Header.Set("User-Agent", "OTel-OTLP-Exporter-Penstock/"+display.Text(s.Version))
	if host := s.Headers.Get("Host"); host != "" {
		r.Host = host
	}
	return r, nil
}
