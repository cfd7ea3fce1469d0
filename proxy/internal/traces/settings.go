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

// Settings say which sessions are sampled, and where spans go. They do not change once an [Exporter] owns them.
type Settings struct {
	// Endpoint is a URL with the scheme http or https. Protocol is [GRPC] or [HTTP].
	Endpoint *url.URL
	Protocol string
	// Ratio is the share of the sessions that is sampled, from 0 to 1.
	Ratio float64
	// Headers are sent with each request. One of them may be a token.
	Headers http.Header
	// TLS is the configuration for https. If it is nil, the system's authorities are used.
	TLS *tls.Config
	// Gzip compresses requests.
	Gzip bool

	// Queue is the largest number of spans that wait or are being sent. Batch is the largest number of spans in
	// one request. Delay is how long a span waits for others.
	Queue, Batch int
	Delay        time.Duration
	// Timeout limits one attempt. Retry limits the time in which a batch is sent again. Flush limits the last
	// export.
	Timeout, Retry, Flush time.Duration

	// Connect connects as [sockopt.Dial] does; nil: it is that.
	Connect func(ctx context.Context, d *net.Dialer, network, address string) (net.Conn, error)

	// Resource describes this process.
	Resource []Attribute
	// Version is the program's version.
	Version string

	resource  *resourcepb.Resource
	conn      *grpc.ClientConn          // for gRPC; made for the first attempt
	transport *http.Transport           // for HTTP
	last      *atomic.Pointer[net.Conn] // the last connection, which the transport owns; nil: none
}

// An Attribute is an attribute of a resource.
type Attribute struct{ Key, Value string }

// tracesPath is the path for OTLP over HTTP if the URL has none.
const tracesPath = "/v1/traces"

// Open checks and completes the settings. The caller calls Discard, unless an [Exporter] gets the settings.
func (s *Settings) Open() error {
	to := *s.Endpoint
	switch {
	case to.Scheme != "http" && to.Scheme != "https" || to.Host == "":
		return fmt.Errorf("traces: endpoint %q is not the URL of a collector", s.Endpoint)
	case s.Queue <= 0 || s.Batch <= 0:
		return errors.New("traces: no room for spans")
	case s.Protocol != GRPC && (to.Path == "" || to.Path == "/"):
		to.Path = tracesPath
	}
	s.Endpoint = &to
	if s.Connect == nil {
		s.Connect = sockopt.Dial
	}
	s.resource, s.last = &resourcepb.Resource{}, new(atomic.Pointer[net.Conn])
	s.attributes((*attributes)(&s.resource.Attributes))
	s.transport = &http.Transport{ // it uses no proxy
		DialContext: s.dial, TLSClientConfig: s.TLS, TLSHandshakeTimeout: s.Timeout, DisableCompression: true,
		MaxConnsPerHost: 1, IdleConnTimeout: 90 * time.Second, ForceAttemptHTTP2: true,
	}
	return nil
}

// open makes the connection for gRPC.
func (s *Settings) open() (err error) {
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
		grpc.WithNoProxy(), grpc.WithUserAgent(s.userAgent()), grpc.WithStatsHandler(s), grpc.WithTransportCredentials(security),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnect, MinConnectTimeout: s.Timeout}), grpc.WithDefaultCallOptions(grpc.UseCompressor(compressor)),
	}
	if host := s.Headers.Get("Host"); host != "" {
		options = append(options, grpc.WithAuthority(host))
	}
	s.conn, err = grpc.NewClient("passthrough:///"+net.JoinHostPort(s.Endpoint.Hostname(), cmp.Or(s.Endpoint.Port(), port)), options...)
	return err
}

func (s *Settings) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := s.Connect(ctx, &net.Dialer{Timeout: s.Timeout}, network, address)
	if err == nil {
		s.last.Store(&conn)
	}
	return conn, err
}

func (s *Settings) userAgent() string {
	return "OTel-OTLP-Exporter-Penstock/" + display.Text(s.Version)
}

// cut closes the connection, because the transport would use it again after a request without an answer. There is
// only one connection at a time.
func (s *Settings) cut() {
	if conn := s.last.Swap(nil); conn != nil {
		_ = (*conn).Close() // the transport closes the connection as well
	}
}

// Discard closes the connection.
func (s *Settings) Discard() {
	if s.conn != nil {
		_ = s.conn.Close()
	}
	s.transport.CloseIdleConnections()
}

// scope is the name of the instrumentation.
const scope = "github.com/penstock/penstock/proxy"

// schema is the version of the semantic conventions that attributes follow.
const schema = "https://opentelemetry.io/schemas/1.37.0"

// instanceID identifies this process.
var instanceID = instance(thisProcess)

// attributes adds the attributes of the resource. An attribute of the settings replaces our own.
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

// own returns the attributes of the resource that the settings may replace.
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
