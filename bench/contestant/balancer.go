package contestant

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"text/template"
	"time"

	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/proxy/admin"
)

// The names of the kinds that are `penstock run`.
const (
	RunName       = "penstock-run"
	RealisticName = "penstock-run-realistic"
)

// balancer starts `penstock run` with a file.
type balancer struct{ text *template.Template }

const smallestText = `listeners: [{name: bench, bind: "{{.Listen}}", upstream: sink}]
upstreams: [{name: sink, endpoints: ["{{.Upstream}}"]}]
`

var smallestFile = template.Must(template.New("smallest").Parse(smallestText))

// terminatingFile terminates TLS.
var terminatingFile = template.Must(template.New("terminating").Parse(`listeners: [{name: bench, bind: "{{.Listen}}", upstream: sink, tls: {certificates: [{cert: "{{.Certificate}}", key: "{{.Certificate}}"}]}}]
upstreams: [{name: sink, endpoints: ["{{.Upstream}}"], health_check: off}]
`))

// Terminating returns kinds that terminate TLS with Setting.Certificate, and forward the content. Penstock comes
// first.
func Terminating(threads int) []*Kind {
	return []*Kind{
		{"penstock-tls", "penstock run, a listener that terminates TLS", balancer{text: terminatingFile}},
		{"haproxy-tls", fmt.Sprintf("HAProxy, bind ssl crt, mode tcp, %d threads", threads), haproxy(threads, copies)},
	}
}

// Forwarding returns the kinds of Terminating, in the same order, but without TLS.
func Forwarding(threads int) []*Kind {
	return []*Kind{
		{RunName, "penstock run, a listener that forwards", balancer{text: smallestFile}},
		{"haproxy", fmt.Sprintf("HAProxy, mode tcp, %d threads", threads), haproxy(threads, copies)},
	}
}

// realisticFile has the settings of a typical operator. Only the cost of checking them is measured: no limit,
// timeout or deny rule takes effect.
var realisticFile = template.Must(template.New("realistic").Parse(`limits: {per_second: 1000000}
listeners:
  - name: bench
    bind: "{{.Listen}}"
    allow: ["127.0.0.0/8", "10.0.0.0/8", "192.168.0.0/16"]
    deny: ["127.66.0.0/16"]
    routes:
      - {match: {source: ["10.1.0.0/16"]}, upstream: elsewhere}
      - {match: {source: ["127.0.0.0/8"]}, upstream: sink}
    limits: {connections: 1000000, per_second: 1000000, per_source: 1000000, per_source_per_second: 1000000}
    timeouts: {preread: 5s, connect: 5s, first_byte: 10s, idle: 1h, half_close: 1m, lifetime: 24h}
upstreams:
  - name: sink
    balance: least_conn
    endpoints: [{address: "{{.Upstream}}", name: sink, connections: 1000000}]
    health_check: {type: tcp, interval: 1s}
    outlier_detection: {consecutive_failures: 5, failure_percentage: 50}
    circuit_breaker: {failure_percentage: 60, connections: 1000000, pending: 100000}
    retry: {attempts: 2}
    send_proxy: 2
  - name: elsewhere
    endpoints: ["127.0.0.1:1"]
    health_check: off
`))

func (balancer) Available(context.Context, *Setting) error { return nil }

func (b balancer) Config(_ context.Context, s *Setting) string {
	return execute(b.text, map[string]any{"Listen": s.listen(), "Upstream": s.Upstream, "Endpoints": s.Endpoints, "Certificate": s.Certificate})
}

func (b balancer) start(ctx context.Context, name string, s *Setting) (*Contestant, error) {
	dir, err := os.MkdirTemp(s.Dir, "penstock-")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	file := filepath.Join(dir, "penstock.yaml")
	return startOwn(ctx, name, s, dir, func(socket string) (process.Spec, error) {
		err := os.WriteFile(file, fmt.Appendf(nil, "admin: {bind: %q}\n%s", socket, b.Config(ctx, s)), 0o600)
		return s.Program.Penstock(name, s.Program.Run, "--config", file, "--log", "json"), err
	})
}

// The kinds of Balancing that are Penstock. The first only checks that its endpoints accept connections, the
// second also checks that they answer.
const (
	BalancingName = "penstock"
	CheckingName  = "penstock-checks"
)

// Balancing returns kinds that spread clients over Setting.Endpoints. CheckingName and the kinds after it check
// now and then that each endpoint answers an HTTP request. The kinds before it check at most that endpoints accept
// a connection.
func Balancing(threads int) []*Kind {
	redispatch := []string{"balance roundrobin", "option redispatch", "retries 3"}
	often := []string{"balance roundrobin", "option redispatch 1", "retries 3"}
	const observe = " observe layer4 error-limit 3 on-error mark-down"
	haproxyOf := func(lines []string, more ...string) *server {
		return haproxy(threads, copies, slices.Concat(lines, more)...)
	}
	return []*Kind{
		{BalancingName, "penstock run, its file has the endpoints and nothing else", balancer{text: balancingFile("")}},
		{"haproxy", "HAProxy: option redispatch, retries 3, check", haproxyOf(redispatch, "default-server check")},
		{
			"haproxy-observe", "HAProxy: option redispatch 1, retries 3, check fastinter 500ms downinter 500ms" + observe,
			haproxyOf(often, "default-server check fastinter 500ms downinter 500ms"+observe),
		},
		{"nginx", "nginx stream, as it is by default: proxy_next_upstream on, max_fails=1, fail_timeout=10s", nginx("", "")},
		{"nginx-tuned", "nginx stream: zone, fail_timeout=1s", nginx("endpoints", " max_fails=1 fail_timeout=1s")},
		{CheckingName, "penstock run: health_check http every second, every 250 ms while it changes", balancer{text: balancingFile(checkingText)}},
		{
			"haproxy-checks", "HAProxy: as haproxy-observe with option httpchk, inter 1s fastinter 250ms downinter 250ms fall 2",
			haproxyOf(often, "option httpchk GET /", "default-server check inter 1s fastinter 250ms downinter 250ms fall 2"+observe),
		},
	}
}

const checkingText = `    health_check: {type: http, interval: 1s, fast_interval: 250ms, fall: 2}
`

func balancingFile(more string) *template.Template {
	return template.Must(template.New("balancing").Parse(`listeners: [{name: bench, bind: "{{.Listen}}", upstream: endpoints}]
upstreams:
  - name: endpoints
    endpoints:
{{- range .Endpoints}}
      - "{{.}}"
{{- end}}
` + more))
}

// LaneName is the name of the kind that is `penstock run` with sessions that leave user space.
const LaneName = "penstock-run-lane"

// laneStart is how long a process with a lane may take to start. The kernel verifies its programs for a third of a
// second of CPU time, and a busy machine may not have that for a long time.
const laneStart = 2 * time.Minute

// errOrdinary says why an ordinary user has no lane.
var errOrdinary = errors.New("sessions leave user space by BPF programs, which need CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN: run the command as root")

// laned is `penstock run` with the smallest file and `lane: auto`.
type laned struct{ balancer }

func newLaned() laned {
	return laned{balancer{text: template.Must(template.New(LaneName).Parse(`listeners: [{name: bench, bind: "{{.Listen}}", upstream: sink, lane: auto}]
upstreams: [{name: sink, endpoints: ["{{.Upstream}}"]}]
`))}}
}

func (laned) Available(context.Context, *Setting) error {
	if os.Geteuid() != 0 {
		return errOrdinary
	}
	return nil
}

// start rejects a process that serves without a lane, because its results would have the wrong name.
func (l laned) start(ctx context.Context, name string, s *Setting) (*Contestant, error) {
	c, err := l.balancer.start(ctx, name, s)
	if err != nil {
		return nil, err
	}
	a, err := c.Account(ctx)
	for err == nil && a.Summary.Lane != nil && a.Summary.Lane.State == admin.LaneOpening {
		select {
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
			a, err = c.Account(ctx)
		}
	}
	if err == nil {
		err = laneOn(a.Summary.Lane)
	}
	if err != nil {
		c.Kill()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return c, nil
}

// laneOn returns the reason why sessions of a process with that lane do not leave user space, or nil if they can.
func laneOn(l *admin.Lane) error {
	switch {
	case l == nil:
		return errors.New("the status of the process has no lane")
	case l.State != admin.LaneOn:
		return fmt.Errorf("sessions stay in user space: the lane is %s: %s", l.State, cmp.Or(l.Why, "no reason given"))
	}
	return nil
}
