package config

import (
	"cmp"
	"fmt"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock/proxy/internal/sessionlog"
	"github.com/penstock/penstock/proxy/internal/traces"
	"github.com/penstock/penstock/proxy/sockopt"
	"golang.org/x/net/http/httpguts"
)

// A SessionLog writes lines about clients: at their end, and optionally at the beginning of their session and during
// it.
type SessionLog struct {
	Pos        Pos
	To         string        `key:"to" type:"destination" required:"yes" eg:"/var/log/penstock/sessions.log" doc:"File or FIFO, stderr, journald, syslog+udp://192.0.2.1:514 or syslog+unix:/dev/log (RFC 5424). SIGUSR1, or moving the file away, opens it again."`
	Format     string        `key:"format" default:"json" enum:"json haproxy-tcp template" doc:"json: one object on each line. haproxy-tcp: the format of HAProxy's option tcplog. template: the format in the key template."`
	Template   string        `key:"template" default:"" eg:"{time} {client} {upstream}/{endpoint} {reason}" doc:"{field} stands for a field of the JSON line, or for - if the line does not have it. {{ stands for a brace."`
	At         []string      `key:"at" default:"end" single:"yes" enum:"start end" doc:"start: a line when a client is connected to an endpoint. end: a line when the client has left, with or without an endpoint."`
	Every      time.Duration `key:"every" default:"0s" range:"0..8760h" eg:"10m" doc:"Time between further lines of a running session, at least 1s. 0: no further lines."`
	Only       string        `key:"only" default:"all" enum:"all failed" doc:"failed: only sessions that did not end by the ends of file of both sides, and clients without an endpoint."`
	SlowerThan time.Duration `key:"slower_than" default:"0s" range:"0..8760h" eg:"1s" doc:"Only sessions that lasted at least this long, and failed sessions. 0: all."`
	Share      float64       `key:"share" default:"100" range:"0..100" unit:"%" eg:"10" doc:"Percentage of the clients that have lines, chosen by their id."`
	PerSecond  int64         `key:"per_second" default:"0" range:"0..100000000" unit:"1/s" doc:"Most lines in a second. Further lines are dropped and counted. 0: no limit."`
}

func setDestination(d *decoder, _ *field, v reflect.Value, text string) *complaint {
	if c := checkLine(text); c != nil {
		return c
	}
	switch text {
	case "":
		return complain("write a path, stderr or journald", "the destination is empty")
	case "stdout", "-":
		return complain("write stderr, or a path", "standard output has only the summary at the end")
	case "syslog":
		return complain("write syslog+unix:/dev/log or syslog+udp://192.0.2.1:514", "syslog needs an address")
	}
	if scheme, _, found := strings.Cut(text, ":"); d != nil && text != "stderr" && text != "journald" && (!found || strings.Contains(scheme, "/")) {
		text = d.src.absolute(text)
	}
	if _, err := sessionlog.ParseDestination(text); err != nil {
		return complain("write a path, stderr, journald, syslog+udp://192.0.2.1:514 or syslog+unix:/dev/log", "%q is not a destination: %v", text, err)
	}
	v.SetString(text)
	return nil
}

func (k *checker) sessionLog(l *SessionLog) {
	if l == nil || k.bad[l] {
		return
	}
	k.logFile(l)
	switch {
	case l.Format != sessionlog.FormatTemplate && l.Template != "":
		k.complainAt(k.at(&l.Template, l), "write format: template, or leave template out", "template has no effect with format: %s", l.Format)
	case l.Format == sessionlog.FormatTemplate && !k.bad[&l.Template]:
		k.template(l)
	}
	if l.Every > 0 && l.Every < time.Second {
		k.complainAt(k.at(&l.Every, l), "write 1s or more", "every is shorter than 1s")
	}
	if len(l.At) == 0 && l.Every == 0 && !k.bad[&l.At] {
		k.complainAt(k.at(&l.At, l), "write at: end", "at is empty, so no client has a line")
	}
	if l.Only == "failed" && l.SlowerThan > 0 {
		k.warnAt(k.at(&l.SlowerThan, l), "leave slower_than out, or only", "slower_than has no effect with only: failed, because failed sessions are logged whatever their duration")
	}
	if (l.Only == "failed" || l.SlowerThan > 0) && slices.Contains(l.At, "start") {
		k.warnAt(k.at(&l.At, l), "leave start out, or only and slower_than", "at: start has no effect with only: failed or slower_than, because a session that begins has neither failed nor lasted")
	}
	if l.Only == "failed" && l.Every > 0 {
		k.warnAt(k.at(&l.Every, l), "leave every out, or only", "every has no effect with only: failed, because a session that goes on has not failed")
	}
	if l.Share == 0 {
		k.warnAt(k.at(&l.Share, l), "leave session_log out, or write a share", "with share: 0 no line is written")
	}
}

// logFile checks that the log file can exist, as directories does for sockets.
func (k *checker) logFile(l *SessionLog) {
	to, err := sessionlog.ParseDestination(l.To)
	path := to.File()
	if err != nil || path == "" {
		return
	}
	at := k.at(&l.To, l)
	switch is := k.look(path); {
	case is.dir:
		k.complainAt(at, "write the path of a file in it", "%s is a directory", path)
	case is.disk:
		k.complainAt(at, "write the path of a file", "%s is a block device", path)
	case is.socket && !strings.HasPrefix(path, "/dev/std"): // each process has its own
		k.complainAt(at, "write syslog+unix:"+path+", or journald:"+path, "%s is a socket", path)
	case is.err != nil:
		k.warnAt(at, mend(is.err, 0), "%v", is.err)
	default:
		k.directoryOf(path, at)
	}
}

func (k *checker) template(l *SessionLog) {
	err := sessionlog.CheckTemplate(l.Template)
	if err == nil {
		return
	}
	fix := "write {client}, {upstream} or another field of docs/session-log.md"
	if _, name, found := strings.Cut(err.Error(), "{"); found {
		if meant := closest(strings.TrimSuffix(name, "}"), sessionlog.Fields()); meant != "" {
			fix = didYouMean(meant)
		}
	}
	if l.Template == "" {
		fix = `write template: "{time} {client} {upstream}/{endpoint} {reason}"`
	}
	k.complainAt(k.at(&l.Template, l), fix, "%v", err)
}

// Traces exports sampled sessions as OpenTelemetry spans.
type Traces struct {
	Pos                Pos
	Endpoint           string        `key:"endpoint" type:"collector" required:"yes" eg:"http://127.0.0.1:4317" doc:"URL of the collector, http:// or https:// (TLS). With http/protobuf and no path, /v1/traces."`
	Protocol           string        `key:"protocol" default:"grpc" enum:"grpc http/protobuf" doc:"Protocol of OTLP; the usual ports are 4317 and 4318."`
	Sample             float64       `key:"sample" default:"1" range:"0..100" unit:"%" eg:"1" doc:"Percentage of traced clients, chosen by their id."`
	Headers            []TraceHeader `key:"headers" doc:"Headers of each request, such as a token."`
	Resource           []string      `key:"resource" type:"attribute" eg:"service.name=edge" single:"yes" doc:"Attributes of this process, KEY=VALUE. They add to or replace service.name (penstock), service.version, service.instance.id, host.name, process.pid and process.executable.name."`
	Compression        string        `key:"compression" default:"none" enum:"none gzip" doc:"Compression of requests."`
	TLS                *TracesTLS    `key:"tls" doc:"TLS to the collector. Absent: the system's certificate authorities are used."`
	Timeout            time.Duration `key:"timeout" default:"10s" range:"10ms..5m" doc:"Longest duration of a request."`
	RetryFor           time.Duration `key:"retry_for" default:"1m" range:"0..1h" doc:"How long a request without an answer, or with the answer to try again, is repeated. After that its spans are dropped."`
	MaxQueueSize       int           `key:"max_queue_size" default:"2048" range:"1..1000000" doc:"Most waiting spans, about 1KiB each. Further spans are dropped."`
	MaxExportBatchSize int           `key:"max_export_batch_size" default:"512" range:"1..10000" doc:"Most spans in a request."`
	ScheduleDelay      time.Duration `key:"schedule_delay" default:"5s" range:"1ms..5m" doc:"Longest time that a span waits for a full batch."`
	FlushTimeout       time.Duration `key:"flush_timeout" default:"5s" range:"0..5m" doc:"Longest wait for the last spans at the end of the process."`
}

// A TraceHeader is a header of the requests to a collector.
type TraceHeader struct {
	Pos   Pos
	Name  string `key:"name" type:"header" required:"yes" eg:"Authorization" doc:"Name of the header."`
	Value Secret `key:"value" required:"yes" eg:"file:/etc/penstock/collector.token" doc:"Value of the header."`
}

// TracesTLS describes TLS to a collector.
type TracesTLS struct {
	Pos  Pos
	CA   Path   `key:"ca" default:"" eg:"ca.pem" doc:"PEM file of authorities for the collector's certificate. Empty: the system's."`
	SNI  string `key:"sni" type:"domain" default:"" eg:"collector.example" doc:"Server name to send and to verify. Empty: the host of endpoint."`
	Cert Path   `key:"cert" default:"" eg:"client.pem" doc:"PEM file of the client certificate. Empty: none."`
	Key  Path   `key:"key" default:"" eg:"client.key" doc:"PEM file of its private key."`
}

// Same reports whether traces are exported in the same way, apart from the contents of files.
func (t *Traces) Same(o *Traces) bool { return alike(t, o) }

func checkCollector(text string) *complaint {
	const fix = "write http://127.0.0.1:4317 or https://collector.example:4317"
	if c := checkLine(text); c != nil {
		return c
	}
	u, err := url.Parse(text)
	switch {
	case err != nil && strings.Contains(text, "@"): // the text may have a password
		return &complaint{fix: fix, message: "it is not a URL of a collector", secret: true}
	case err != nil || u.Host == "" && u.User == nil || u.Scheme != "http" && u.Scheme != "https":
		return complain(fix, "%q is not a URL of a collector", text)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return &complaint{fix: "write a token as an entry of headers", message: "the URL must have only a host and a path", secret: true}
	case u.Port() == "" && u.Scheme == "http":
		return complain("write http://"+u.Host+":4317, or :4318 for http/protobuf", "%q has no port", text)
	}
	host := u.Hostname()
	if _, err := netip.ParseAddr(host); err != nil && !sockopt.IsHostname(strings.TrimSuffix(host, ".")) {
		return complain(fix, "%q has no host: %q is neither an IP address nor a name", text, host)
	}
	return nil
}

func checkAttribute(text string) *complaint {
	key, value, found := strings.Cut(text, "=")
	if !found || key == "" || value == "" || strings.ContainsAny(key, " \t") {
		return complain("write service.name=edge", "%q is not KEY=VALUE", text)
	}
	return checkLine(text)
}

// checkHeader requires a header name that a request may have (RFC 9110, 5.6.2).
func checkHeader(text string) *complaint {
	if !httpguts.ValidHeaderFieldName(text) {
		return complain("write a name such as Authorization", "%.40q is not the name of a header", text)
	}
	switch strings.ToLower(text) {
	case "content-type", "content-length", "content-encoding", "transfer-encoding", "connection", "te", "user-agent", "grpc-timeout", "grpc-encoding":
		return complain("leave it out", "the exporter sets %s itself", text)
	}
	return nil
}

func (k *checker) traces(t *Traces) {
	if t == nil || k.bad[t] {
		return
	}
	u, err := url.Parse(t.Endpoint)
	if err != nil || t.Endpoint == "" {
		return // reported already
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
		k.warnAt(k.at(&t.Headers[0], t), "write https://", "the headers may contain secrets, and go over the network in clear text")
	}
	if t.MaxExportBatchSize > t.MaxQueueSize {
		k.warnAt(k.at(&t.MaxExportBatchSize, t), fmt.Sprintf("write %d or less", t.MaxQueueSize), "max_export_batch_size is %d, but at most %d spans wait (max_queue_size)", t.MaxExportBatchSize, t.MaxQueueSize)
	}
	if t.Sample == 0 {
		k.warnAt(k.at(&t.Sample, t), "leave traces out, or write a percentage", "with sample: 0 no client is traced")
	}
}

func (k *checker) tracesTLS(t *Traces, u *url.URL) {
	s := t.TLS
	if u.Scheme == "http" {
		k.complainAt(k.at(s, t), "write https:// in endpoint, or leave tls out", "tls has no effect with http://")
	}
	k.authorities(&s.CA, s)
	k.own(&s.Cert, &s.Key, s)
}
