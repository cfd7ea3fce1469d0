package contestant

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"text/template"

	"github.com/penstock/penstock/bench/process"
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

func (balancer) available(context.Context, *Setting) error { return nil }

func (b balancer) config(_ context.Context, s *Setting) string {
	return execute(b.text, map[string]any{"Listen": s.listen(), "Upstream": s.Upstream, "Endpoints": s.Endpoints, "Certificate": s.Certificate})
}

func (b balancer) start(ctx context.Context, name string, s *Setting) (*Contestant, error) {
	dir, err := os.MkdirTemp(s.Dir, "penstock-")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	file := filepath.Join(dir, "penstock.yaml")
	return startOwn(ctx, name, s, dir, func(socket string) (process.Spec, error) {
		err := os.WriteFile(file, fmt.Appendf(nil, "admin: {bind: %q}\n%s", socket, b.config(ctx, s)), 0o600)
		return s.Program.Penstock(name, s.Program.Run, "--config", file, "--log", "json"), err
	})
}
