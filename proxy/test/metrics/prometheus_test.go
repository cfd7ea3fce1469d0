package metrics

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/certificate"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/sockets"
	"github.com/penstock/penstock/internal/testutil/software"
	"github.com/penstock/penstock/proxy/internal/testutil/program"
	"github.com/penstock/penstock/proxy/internal/testutil/wasmfile"
)

type prometheus struct {
	t   testing.TB
	url string
}

// startPrometheus runs a Prometheus with a configuration, and the rules in files beside it.
func startPrometheus(t testing.TB, configuration string, files map[string]string, flags ...string) *prometheus {
	t.Helper()
	program := software.Need(t, "prometheus", "prometheus")
	dir := software.Dir(t, nil)
	must(t, os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(configuration), 0o600))
	for name, text := range files {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	addr, _, _ := software.Addr(t)
	software.Service{
		Command: append([]string{program, "--config.file=prometheus.yml", "--storage.tsdb.path=data", "--web.listen-address=" + addr}, flags...),
		Dir:     dir, Addr: addr, Ready: "Server is ready to receive web requests", Stop: syscall.SIGTERM,
	}.Start(t)
	return &prometheus{t, "http://" + addr}
}

type series struct {
	Metric map[string]string
	Value  [2]any
}

func (p *prometheus) query(expr string) (list []series, err error) {
	var answer struct {
		Error string
		Data  struct {
			ResultType string
			Result     json.RawMessage
		}
	}
	if err := p.get("/api/v1/query?query="+url.QueryEscape(expr), &answer); err != nil {
		return nil, err
	}
	if answer.Error != "" || answer.Data.ResultType != "vector" {
		return nil, fmt.Errorf("%s: %s %s", expr, answer.Error, answer.Data.ResultType)
	}
	return list, json.Unmarshal(answer.Data.Result, &list)
}

func (p *prometheus) get(path string, to any) error {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get(p.url + path)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	return json.NewDecoder(response.Body).Decode(to)
}

// returnsData waits until a query returns data.
func (p *prometheus) returnsData(what, expr string) {
	p.t.Helper()
	var list []series
	var err error
	if !condition.Eventually(func() bool { list, err = p.query(expr); return err == nil && len(list) > 0 }) {
		p.t.Errorf("%s: %s returns no data: %v", what, expr, err)
	}
}

// penstock runs the program with traffic, and returns the address of its metrics and its token's file.
func penstock(t *testing.T) (addr, token string) {
	t.Helper()
	dir := software.Dir(t, nil)
	addr, _, _ = software.Addr(t)
	plain, _, _ := software.Addr(t)
	filtered, _, _ := software.Addr(t)
	failing, _, _ := software.Addr(t)
	rewritten, _, _ := software.Addr(t)
	cert, key := certificate.New(t, "front.test")
	echo := sockets.Server(t, sockets.Echo)
	token = filepath.Join(dir, "token")
	for name, text := range map[string]string{
		"c.pem": cert, "k.pem": key, "token": "s3cret\n", "found.yaml": fmt.Sprintf("- %q\n- %q\n", echo, sockets.Server(t, sockets.Echo)), // each has a peer
		"allow.wasm": filter(wasmfile.Const(0)), "trap.wasm": filter(wasmfile.Unreachable),
	} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	program.Start(t, program.Build(t), dir, fmt.Sprintf(`
metrics: {bind: %q, allow: [127.0.0.0/8], token: "file:token"}
listeners:
  - {name: plain, bind: %q, upstream: web, mirror: {upstream: shadow, compare: {framing: grpc}}}
  - {name: filtered, bind: %q, upstream: found, filter: {wasm: allow.wasm, timeout: 10s}}
  - {name: failing, bind: %q, upstream: found, filter: {wasm: trap.wasm, on_error: allow, timeout: 10s}}
  - {name: rewritten, bind: %q, upstream: found, rewrite: {direction: up, wasm: allow.wasm, timeout: 10s}}
  - {name: tls, bind: "127.0.0.1:0", upstream: found, tls: {certificates: [{cert: c.pem, key: k.pem}]}}
upstreams:
  - name: web
    endpoints: [%q, %q]
    circuit_breaker: {connections: 1000, pending: 100}
  - {name: found, discover: {file: {path: found.yaml}}}
  - {name: shadow, endpoints: [%q]}
`, addr, plain, filtered, failing, rewritten, echo, sockets.Refusing(t), echo))
	stop := make(chan struct{})
	stopped := make(chan struct{})
	t.Cleanup(func() { close(stop); <-stopped })
	go func() {
		defer close(stopped)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				for _, at := range []string{plain, filtered, failing, rewritten} {
					session(at)
				}
			}
		}
	}()
	return addr, token
}

// filter is a module that is asked about each new connection, and lets the bytes of clients go on.
func filter(code any) string {
	m := &wasmfile.Module{Pages: 1}
	i32 := string(rune(wasmfile.I32))
	m.Func("proxy_on_downstream_data", i32+i32+i32, i32, 0, wasmfile.Const(0))
	m.Func("proxy_abi_version_0_2_1", "", "", 0)
	m.Func("proxy_on_new_connection", i32, i32, 0, wasmfile.Code(code))
	return string(m.Bytes())
}

// session is a client's session, which may fail.
func session(addr string) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Second))
	if _, err := io.WriteString(c, "hello, which is no gRPC\n"); err == nil {
		_, _ = sockets.ReadLine(c)
	}
}

// TestPrometheus: the example scrapes a running penstock, each query of the dashboard and each rule returns
// data, and each alert without its threshold. None fires without a reason.
func TestPrometheus(t *testing.T) {
	software.Long(t, "Prometheus reads the metrics")
	promtool := software.Need(t, "promtool", "prometheus")
	addr, token := penstock(t)
	configuration := strings.NewReplacer(
		"localhost:9464", addr, "15s", "500ms", "# authorization: {credentials_file: /etc/prometheus/penstock.token} #", "authorization: {credentials_file: "+token+"} #",
		`"localhost:9093"`, "",
	).Replace(read(t, "prometheus", "prometheus.yml"))
	p := startPrometheus(t, configuration, map[string]string{"alerts.yml": read(t, "prometheus", "alerts.yml"), "recording.yml": read(t, "prometheus", "recording.yml")})
	p.returnsData("scrape", `up{job="penstock"} == 1`)
	p.returnsData("two scrapes", `rate(penstock_upstream_sessions_total{upstream="web"}[1m]) > 0`)
	for _, r := range rules(t, "recording.yml") {
		p.returnsData("recorded", r.Record)
	}
	for _, r := range rules(t, "alerts.yml") {
		bare := comparison.ReplaceAllString(r.Expr, "")
		if bare == r.Expr {
			t.Errorf("%s has no threshold at its end: %s", r.Alert, r.Expr)
		}
		p.returnsData(r.Alert, bare)
	}
	for title, queries := range panelQueries(t) {
		for _, expr := range queries {
			p.returnsData(title, expr)
		}
	}
	p.sound()
	p.families(addr, token, promtool)
}

// sound checks that the rules were evaluated without an error, and that no alert fires but one for the
// endpoint that refuses.
func (p *prometheus) sound() {
	p.t.Helper()
	var answer struct {
		Data struct {
			Groups []struct {
				Rules []struct {
					Name, Type, Health, LastError, State string
				}
			}
		}
	}
	must(p.t, p.get("/api/v1/rules", &answer))
	n := 0
	for _, g := range answer.Data.Groups {
		for _, r := range g.Rules {
			if n++; r.Health != "ok" || r.LastError != "" {
				p.t.Errorf("%s: %s %s", r.Name, r.Health, r.LastError)
			}
			if r.State == "firing" {
				p.t.Errorf("%s fires", r.Name)
			}
		}
	}
	if want := len(rules(p.t, "alerts.yml")) + len(rules(p.t, "recording.yml")); n != want {
		p.t.Errorf("%d rules, want %d", n, want)
	}
}

// families checks the text of a scrape by Prometheus's linter, whose complaints are of style but for the first
// kind, and that OpenMetrics was chosen by Prometheus itself.
func (p *prometheus) families(addr, token, promtool string) {
	p.t.Helper()
	secret, err := os.ReadFile(token)
	must(p.t, err)
	request, err := http.NewRequest(http.MethodGet, "http://"+addr+"/metrics", nil)
	must(p.t, err)
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(secret)))
	response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
	must(p.t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	must(p.t, err)
	path := filepath.Join(p.t.TempDir(), "scrape")
	must(p.t, os.WriteFile(path, text, 0o600))
	software.Run(p.t, "/bin/sh", "-c", `exec "$0" check metrics <"$1"`, promtool, path)
}
