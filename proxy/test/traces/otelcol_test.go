//go:build linux

// Package traces_test sends the traces of a load balancer to a real OpenTelemetry collector.
package traces_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/internal/testutil/software"
	"github.com/penstock/penstock/proxy/internal/testutil/collector"
	"github.com/penstock/penstock/proxy/internal/testutil/loadbalancer"
)

func TestMain(m *testing.M) { leak.Main(m) }

// otelcol returns the program of the collector. Debian has none, so it is built by hand.
func otelcol(t *testing.T) string {
	t.Helper()
	path := os.Getenv("PENSTOCK_OTELCOL")
	if path == "" {
		path, _ = exec.LookPath("otelcol")
	}
	if path == "" {
		t.Skip("no otelcol in PATH or PENSTOCK_OTELCOL. Build one, which takes minutes: GOWORK=off go run go.opentelemetry.io/collector/cmd/builder@v0.165.0 " +
			"--config proxy/test/traces/otelcol-builder.yaml --output-path DIR; then set PENSTOCK_OTELCOL=DIR/otelcol")
	}
	return path
}

// A peer is a collector that passes spans on to one of ours, and confirms them when that has
// them.
type peer struct {
	t       *testing.T
	program string
	config  string
	address string
	log     software.Output
	process *exec.Cmd
}

func newPeer(t *testing.T, protocol string, sink *collector.Collector) *peer {
	t.Helper()
	p := &peer{t: t, program: otelcol(t), config: filepath.Join(t.TempDir(), "otelcol.yaml")}
	p.address, _, _ = software.Addr(t)
	name := map[string]string{"grpc": "grpc", "http/protobuf": "http"}[protocol]
	text := fmt.Sprintf(`receivers: {otlp: {protocols: {%s: {endpoint: %q}}}}
exporters: {otlphttp: {endpoint: %q, sending_queue: {enabled: false}}}
service:
  telemetry: {metrics: {level: none}}
  pipelines: {traces: {receivers: [otlp], exporters: [otlphttp]}}
`, name, p.address, sink.URL)
	must(t, os.WriteFile(p.config, []byte(text), 0o600))
	p.start()
	t.Cleanup(p.stop)
	return p
}

func (p *peer) start() {
	p.t.Helper()
	p.process = exec.Command(p.program, "--config", p.config)
	p.process.Stdout, p.process.Stderr = &p.log, &p.log
	p.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must(p.t, p.process.Start())
	if !condition.Eventually(func() bool {
		c, err := net.Dial("tcp", p.address)
		if err == nil {
			c.Close()
		}
		return err == nil
	}) {
		p.t.Fatalf("the collector does not listen:\n%s", p.log.String())
	}
}

// stop has it end, as a service manager would.
func (p *peer) stop() {
	if p.process == nil {
		return
	}
	_ = p.process.Process.Signal(syscall.SIGTERM)
	if err := p.process.Wait(); err != nil {
		p.t.Errorf("the collector ended with %v:\n%s", err, p.log.String())
	}
	p.process = nil
}

// sessions has n clients talk, one after the other; those of the closed listener are refused.
func sessions(t *testing.T, address string, n int) {
	t.Helper()
	for range n {
		c, err := net.Dial("tcp", address)
		if err != nil {
			if errors.Is(err, syscall.ECONNRESET) {
				continue
			}
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(condition.Patience))
		_, _ = io.WriteString(c, "hello")
		_ = c.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, c)
		c.Close()
	}
}

// TestOpenTelemetryCollector: a real collector takes every span: with it healthy, received =
// sampled, and with it stopped meanwhile, received + dropped = sampled.
func TestOpenTelemetryCollector(t *testing.T) {
	for _, protocol := range []string{"grpc", "http/protobuf"} {
		t.Run(protocol[:4], func(t *testing.T) {
			sink := collector.Start(t, "http/protobuf", nil)
			p := newPeer(t, protocol, sink)
			b := loadbalancer.Start(t, fmt.Sprintf(`traces: {endpoint: "http://%s", protocol: %s, sample: 100, schedule_delay: 10ms, compression: gzip, max_queue_size: 300}
listeners:
- {name: a, bind: "127.0.0.1:0", upstream: u}
- {name: closed, bind: "127.0.0.1:0", deny: [127.0.0.0/8], upstream: u}
upstreams: [{name: u, endpoints: [%q]}]`, p.address, protocol, sockets.Server(t, sockets.Echo)))
			sessions(t, b.At("a"), 500)
			sessions(t, b.At("closed"), 20)
			b.Until("all are exported", func() bool { return b.Status().Traces.Exported == 520 })
			if n := sink.Distinct(); n != 520 || len(sink.Spans()) != 520 {
				t.Errorf("%d received of 520", n)
			}
			p.stop()
			sessions(t, b.At("a"), 500) // 200 too many
			p.start()
			sessions(t, b.At("a"), 500)
			b.Until("none waits", func() bool { s := b.Status().Traces; return s.Queued == 0 && s.Open == 0 })
			s := b.Status().Traces
			lost := s.Unconfirmed
			for _, n := range s.Dropped {
				lost += n
			}
			got := int64(sink.Distinct())
			if s.Sampled != 1520 || s.Exported+lost != s.Sampled || got < s.Exported || got > s.Exported+s.Unconfirmed || s.Dropped["queue_full"] < 200 {
				t.Errorf("%+v, received %d", *s, got)
			}
			t.Logf("sampled %d, received %d, dropped %v, unconfirmed %d", s.Sampled, got, s.Dropped, s.Unconfirmed)
			if !strings.Contains(p.log.String(), "Everything is ready") {
				t.Errorf("this is no OpenTelemetry collector:\n%s", p.log.String())
			}
		})
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
