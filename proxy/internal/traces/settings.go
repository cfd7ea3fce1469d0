package traces

import (
	"cmp"
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
	"github.com/penstock/penstock/proxy/sockopt"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/gzip"
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
	// TLS is the configuration for https; nil: the system's authorities.
	TLS *tls.Config
	// Gzip compresses requests.
	Gzip bool

	// Queue is how many spans wait at most, those under way included; Batch is how many are sent
	// at once at most, and Delay how long one waits for others.
	Queue, Batch int
	Delay        time.Duration
	// Timeout bounds an attempt, Retry the time in which a batch is tried again, and Flush the
	// last export.
	Timeout, Retry, Flush time.Duration

	// Resource describes this process.
	Resource []Attribute
	// Version is the program's version.
	Version string

	resource  *resourcepb.Resource
	client    otlptrace.Client
	started   bool                      // the client has a connection, which only the goroutine that sends begins
	transport *http.Transport           // of HTTP; nil: gRPC's own
	last      *atomic.Pointer[net.Conn] // the connection, which the transport owns; nil: none
}

// An Attribute is an attribute of a resource.
type Attribute struct{ Key, Value string }

// tracesPath is where OTLP over HTTP goes, unless the URL has a path.
const tracesPath = "/v1/traces"

// Open makes the exporter. The caller calls Discard unless an [Exporter] gets them.
func (s *Settings) Open() error {
	to := *s.Endpoint
	switch {
	case to.Scheme != "http" && to.Scheme != "https" || to.Host == "":
		return fmt.Errorf("traces: endpoint %q: no URL of a collector", s.Endpoint)
	case s.Queue <= 0 || s.Batch <= 0:
		return errors.New("traces: no room for spans")
	case s.Protocol != GRPC && (to.Path == "" || to.Path == "/"):
		to.Path = tracesPath
	}
	s.Endpoint = &to
	s.resource, s.last = &resourcepb.Resource{}, new(atomic.Pointer[net.Conn])
	s.attributes((*attributes)(&s.resource.Attributes))
	if s.Protocol == GRPC {
		s.client = s.overGRPC()
	} else {
		s.client = s.overHTTP()
	}
	return nil
}

// overHTTP returns the exporter of HTTP. All options are given, because the exporter would take
// missing ones from the environment. Its own retries are off, because it does not retry after a
// refused connection.
func (s *Settings) overHTTP() otlptrace.Client {
	s.transport = &http.Transport{ // without a proxy
		DialContext: s.dial, TLSClientConfig: s.TLS, TLSHandshakeTimeout: s.Timeout, DisableCompression: true,
		MaxConnsPerHost: 1, IdleConnTimeout: 90 * time.Second, ForceAttemptHTTP2: true,
	}
	compression := otlptracehttp.NoCompression
	if s.Gzip {
		compression = otlptracehttp.GzipCompression
	}
	return otlptracehttp.NewClient(
		otlptracehttp.WithEndpointURL(s.Endpoint.String()), otlptracehttp.WithEncoding(otlptracehttp.EncodingProtobuf),
		otlptracehttp.WithHTTPClient(&http.Client{Transport: s, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}),
		otlptracehttp.WithTLSClientConfig(nil), otlptracehttp.WithHeaders(nil), otlptracehttp.WithCompression(compression),
		otlptracehttp.WithTimeout(s.Timeout), otlptracehttp.WithRetry(otlptracehttp.RetryConfig{}),
	)
}

// overGRPC returns the exporter of gRPC, in the same way. Its timeout is for all attempts together.
func (s *Settings) overGRPC() otlptrace.Client {
	security, port, compressor := insecure.NewCredentials(), "80", encoding.Identity
	if s.Endpoint.Scheme == "https" {
		security, port = credentials.NewTLS(s.TLS), "443"
	}
	if s.Gzip {
		compressor = gzip.Name
	}
	reconnect := backoff.DefaultConfig
	reconnect.BaseDelay, reconnect.MaxDelay = retryFirst, retryMost
	options := []grpc.DialOption{
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) { return s.dial(ctx, "tcp", address) }),
		grpc.WithNoProxy(), grpc.WithUserAgent(s.userAgent()), grpc.WithUnaryInterceptor(s.call), grpc.WithStatsHandler(s),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnect, MinConnectTimeout: s.Timeout}), grpc.WithDefaultCallOptions(grpc.UseCompressor(compressor)),
	}
	if host := s.Headers.Get("Host"); host != "" {
		options = append(options, grpc.WithAuthority(host))
	}
	return otlptracegrpc.NewClient(
		otlptracegrpc.WithEndpoint("passthrough:///"+net.JoinHostPort(s.Endpoint.Hostname(), cmp.Or(s.Endpoint.Port(), port))),
		otlptracegrpc.WithTLSCredentials(security), otlptracegrpc.WithHeaders(nil),
		otlptracegrpc.WithTimeout(s.Timeout), otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{}), otlptracegrpc.WithDialOption(options...),
	)
}

func (s *Settings) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := sockopt.Dial(ctx, &net.Dialer{Timeout: s.Timeout}, network, address)
	if err == nil {
		s.last.Store(&conn)
	}
	return conn, err
}

func (s *Settings) userAgent() string {
	return "OTel-OTLP-Exporter-Penstock/" + display.Text(s.Version)
}

// cut closes the connection; there is one at a time. After a request without an answer the
// transport would use it again.
func (s *Settings) cut() {
	if conn := s.last.Swap(nil); conn != nil {
		_ = (*conn).Close() // the transport closes it as well
	}
}

// Discard closes the connection.
func (s *Settings) Discard() {
	_ = s.client.Stop(context.Background())
	if s.transport != nil {
		s.transport.CloseIdleConnections()
	}
}

// scope is the name of the instrumentation.
const scope = "github.com/penstock/penstock/proxy"

// schema is the version of the semantic conventions that attributes follow.
const schema = "https://opentelemetry.io/schemas/1.37.0"

// instanceID identifies this process.
var instanceID = instance(thisProcess)

// attributes adds the attributes of the resource.
func (s *Settings) attributes(a *attributes) {
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
