package config

import (
	"cmp"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock/proxy/internal/traces"
	"github.com/penstock/penstock/proxy/sockopt"
)

// Traces have sampled sessions exported as spans of OpenTelemetry.
type Traces struct {
	Pos                Pos
	Endpoint           string        `key:"endpoint" type:"collector" required:"yes" eg:"http://127.0.0.1:4317" doc:"URL of the collector, http:// or https:// (TLS). With protocol: http/protobuf and no path it is /v1/traces."`
	Protocol           string        `key:"protocol" default:"grpc" enum:"grpc http/protobuf" doc:"Protocol of OTLP; the usual ports are 4317 and 4318."`
	Sample             float64       `key:"sample" default:"1" range:"0..100" unit:"%" eg:"1" doc:"Percentage of the clients that are traced, chosen by their id when they are accepted."`
	Headers            []TraceHeader `key:"headers" doc:"Headers of each request, such as a token."`
	Resource           []string      `key:"resource" type:"attribute" eg:"service.name=edge" single:"yes" doc:"Attributes of this process, KEY=VALUE, beside service.name (penstock), service.version, service.instance.id, host.name, process.pid and process.executable.name, or in their place."`
	Compression        string        `key:"compression" default:"none" enum:"none gzip" doc:"Compression of requests."`
	TLS                *TracesTLS    `key:"tls" doc:"TLS to the collector, for https://. Absent: the authorities of the system."`
	Timeout            time.Duration `key:"timeout" default:"10s" range:"10ms..5m" doc:"Longest duration of a request."`
	RetryFor           time.Duration `key:"retry_for" default:"1m" range:"0..1h" doc:"Time in which a request is tried again that was not answered, or answered by try again; then its spans are dropped."`
	MaxQueueSize       int           `key:"max_queue_size" default:"2048" range:"1..1000000" doc:"Spans that wait at most, each about 1KiB; beyond it they are dropped."`
	MaxExportBatchSize int           `key:"max_export_batch_size" default:"512" range:"1..10000" doc:"Spans of a request at most."`
	ScheduleDelay      time.Duration `key:"schedule_delay" default:"5s" range:"1ms..5m" doc:"Longest time for which a span waits for others."`
	FlushTimeout       time.Duration `key:"flush_timeout" default:"5s" range:"0..5m" doc:"Longest time for which the end of the process waits for the last spans to be sent."`
}

// A TraceHeader is a header of the requests to a collector.
type TraceHeader struct {
	Pos   Pos
	Name  string `key:"name" type:"header" required:"yes" eg:"Authorization" doc:"Its name."`
	Value Secret `key:"value" required:"yes" eg:"file:/etc/penstock/collector.token" doc:"Its value, in a file or a variable."`
}

// TracesTLS describes TLS to a collector.
type TracesTLS struct {
	Pos  Pos
	CA   Path   `key:"ca" default:"" eg:"ca.pem" doc:"PEM file of the authorities that verify the collector's certificate. Empty: those of the system."`
	SNI  string `key:"sni" type:"domain" default:"" eg:"collector.example" doc:"Server name to send and to verify. Empty: the host of endpoint."`
	Cert Path   `key:"cert" default:"" eg:"client.pem" doc:"PEM file of the client's certificate. Empty: none."`
	Key  Path   `key:"key" default:"" eg:"client.key" doc:"PEM file of its private key."`
}

// Same reports whether traces are exported in the same way, apart from what files have in them.
func (t *Traces) Same(o *Traces) bool {
	a, b := *t, *o
	same := slices.EqualFunc(a.Headers, b.Headers, TraceHeader.same) && slices.Equal(a.Resource, b.Resource) && both(a.TLS, b.TLS, (*TracesTLS).same)
	for _, c := range []*Traces{&a, &b} {
		c.Pos, c.Headers, c.Resource, c.TLS = Pos{}, nil, nil, nil
	}
	return same && reflect.DeepEqual(a, b)
}

func (h TraceHeader) same(o TraceHeader) bool {
	return h.Name == o.Name && h.Value.Value == o.Value.Value
}
func (t *TracesTLS) same(o *TracesTLS) bool { a := *t; a.Pos = o.Pos; return a == *o }

// checkCollector requires a URL of a collector.
func checkCollector(text string) *complaint {
	const fix = "write http://127.0.0.1:4317 or https://collector.example:4317"
	if c := checkLine(text); c != nil {
		return c
	}
	u, err := url.Parse(text)
	switch {
	case err != nil && strings.Contains(text, "@"): // it may have a password
		return &complaint{fix: fix, message: "it is not a URL of a collector", secret: true}
	case err != nil || u.Host == "" && u.User == nil || u.Scheme != "http" && u.Scheme != "https":
		return complain(fix, "%q is not a URL of a collector", text)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return &complaint{fix: "write a token as an entry of headers", message: "the URL has more than a host and a path", secret: true}
	case u.Port() == "" && u.Scheme == "http":
		return complain("write http://"+u.Host+":4317, or :4318 for http/protobuf", "%q has no port", text)
	}
	host := u.Hostname()
	if _, err := netip.ParseAddr(host); err != nil && !sockopt.IsHostname(strings.TrimSuffix(host, ".")) {
		return complain(fix, "%q has no host: %q is neither an IP address nor a name", text, host)
	}
	return nil
}

// checkAttribute requires KEY=VALUE.
func checkAttribute(text string) *complaint {
	key, value, found := strings.Cut(text, "=")
	if !found || key == "" || value == "" || strings.ContainsAny(key, " \t") {
		return complain("write service.name=edge", "%q is not KEY=VALUE", text)
	}
	return checkLine(text)
}

// checkHeader requires the name of a header that a request may have (RFC 9110, 5.6.2).
func checkHeader(text string) *complaint {
	bad := func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("!#$%&'*+-.^_`|~", r))
	}
	if text == "" || strings.ContainsFunc(text, bad) {
		return complain("write a name such as Authorization", "%.40q is not the name of a header", text)
	}
	switch strings.ToLower(text) {
	case "content-type", "content-length", "content-encoding", "transfer-encoding", "connection", "te", "user-agent", "grpc-timeout", "grpc-encoding":
		return complain("leave it out", "%s is the exporter's own", text)
	}
	return nil
}

// traces checks the export of traces.
func (k *checker) traces(t *Traces) {
	if t == nil || k.bad[t] {
		return
	}
	u, err := url.Parse(t.Endpoint)
	if err != nil || t.Endpoint == "" {
		return // it was reported
	}
	if t.Protocol == traces.GRPC && strings.Trim(u.Path, "/") != "" {
		k.complainAt(k.at(&t.Endpoint, t), "leave the path out, or write protocol: http/protobuf", "gRPC has no path %q", u.Path)
	}
	if t.TLS != nil && !k.bad[t.TLS] {
		k.tracesTLS(t, u)
	}
	for i := range t.Headers {
		h := &t.Headers[i]
		k.credential(&h.Value, h, "the value of "+cmp.Or(h.Name, "the header"))
	}
	if addr, err := netip.ParseAddr(u.Hostname()); u.Scheme == "http" && len(t.Headers) > 0 && !sockopt.Localhost(u.Hostname()) && (err != nil || !addr.IsLoopback()) {
		k.warnAt(k.at(&t.Headers[0], t), "write https://", "headers, which may be secrets, go over the network in plain text")
	}
	if t.MaxExportBatchSize > t.MaxQueueSize {
		k.warnAt(k.at(&t.MaxExportBatchSize, t), "write at most max_queue_size", "a batch of %d spans is never complete, for %d wait at most", t.MaxExportBatchSize, t.MaxQueueSize)
	}
	if t.Sample == 0 {
		k.warnAt(k.at(&t.Sample, t), "leave traces out, or write a percentage", "sample: 0 traces no client")
	}
}

func (k *checker) tracesTLS(t *Traces, u *url.URL) {
	s := t.TLS
	if u.Scheme == "http" {
		k.complainAt(k.at(s, t), "write https:// in endpoint, or leave tls out", "tls is of no use with http://")
	}
	k.authorities(&s.CA, s)
	k.own(&s.Cert, &s.Key, s)
}
