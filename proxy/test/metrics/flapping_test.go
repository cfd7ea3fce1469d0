package metrics

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/full"
	"github.com/penstock/penstock/internal/testutil/race"
	"github.com/penstock/penstock/internal/testutil/software"
	"github.com/penstock/penstock/proxy/internal/metrics"
)

// compressed is how much shorter the replayed day is.
const compressed = 720

// written finds the durations in rules and configurations.
var written = regexp.MustCompile(`\b(\d+)(s|m|h)\b`)

func compress(text string) string {
	return written.ReplaceAllStringFunc(text, func(word string) string {
		d, err := time.ParseDuration(word)
		if err != nil {
			return word
		}
		return strconv.FormatInt(max((d/compressed).Milliseconds(), 1), 10) + "ms"
	})
}

type alert struct {
	Status      string
	Labels      map[string]string
	Fingerprint string
	StartsAt    time.Time
}

// A pager counts what operators get, except for PenstockDown: a scrape has 83 ms in the compressed day,
// which a machine with other work misses now and then.
type pager struct {
	mu       sync.Mutex
	messages int
	alerts   map[string]alert // those that fired, once each time that they did
}

func (p *pager) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	var message struct {
		CommonLabels map[string]string
		Alerts       []alert
	}
	if json.NewDecoder(r.Body).Decode(&message) != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if message.CommonLabels["alertname"] == "PenstockDown" {
		return
	}
	p.messages++
	for _, a := range message.Alerts {
		if a.Labels["alertname"] == "PenstockDown" {
			continue
		}
		p.alerts[a.Fingerprint+a.StartsAt.String()] = a
	}
}

// startedRules count each alert once, as it begins to fire; alertmanager.yml inhibits some of them.
const startedRules = `
groups:
  - name: started
    rules:
      - record: firing
        expr: |
          ALERTS{alertstate="firing", alertname="PenstockUpstreamDown"}
          or (ALERTS{alertstate="firing", alertname="PenstockEndpointFlapping"} unless on (upstream) ALERTS{alertstate="firing", alertname="PenstockUpstreamDown"})
          or (ALERTS{alertstate="firing", alertname="PenstockEndpointDown"} unless on (upstream) ALERTS{alertstate="firing", alertname="PenstockUpstreamDown"}
              unless on (upstream, endpoint) ALERTS{alertstate="firing", alertname="PenstockEndpointFlapping"})
      - record: started
        expr: firing unless firing offset 1m
`

// ofEndpoints are the metrics on which the rules of endpoints depend.
var ofEndpoints = []string{
	"penstock_upstream_endpoints{", "penstock_endpoint_up{", "penstock_endpoint_health_transitions_total{", "penstock_endpoint_ejections_total{",
}

// TestFlappingSimulated: over a day of endpoints that come and go, operators get at most 12 % of the alerts that one
// for each transition would be, and every outage is among them. The day passes inside promtool, whose time is
// simulated. TestFlapping adds a real Alertmanager, and counts messages.
func TestFlappingSimulated(t *testing.T) {
	t.Parallel()
	promtool := software.Need(t, "promtool", "prometheus")
	history := newReplay(15)
	alerts, _, ok := strings.Cut(read(t, "prometheus", "alerts.yml"), "      - alert: PenstockClientsRefused") // others take most of the time
	if !ok {
		t.Fatal("alerts.yml has other alerts")
	}
	dir := software.Dir(t, nil)
	for name, text := range map[string]string{
		"alerts.yml": alerts, "started.yml": startedRules, "day.yml": simulated(t, history),
	} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	software.RunAs(t, nil, dir, promtool, "test", "rules", "day.yml")
}

func simulated(t *testing.T, history *replay) string {
	t.Helper()
	var now time.Duration
	exporter := metrics.NewHandler(func(m *metrics.Sample) { history.sample(m, now) }, metrics.DefaultLimits)
	values := make(map[string]*strings.Builder)
	for now = 0; now <= day; now += time.Minute {
		answer := httptest.NewRecorder()
		exporter.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		for line := range strings.Lines(answer.Body.String()) {
			for _, prefix := range ofEndpoints {
				labels, is := strings.CutPrefix(line, prefix)
				if name, value, ok := strings.Cut(labels, "} "); is && ok {
					name = prefix + `job="penstock",instance="a",` + name + "}"
					if values[name] == nil {
						values[name] = new(strings.Builder)
					}
					values[name].WriteString(" " + strings.TrimSpace(value))
				}
			}
		}
	}
	b := new(strings.Builder)
	b.WriteString("rule_files: [alerts.yml, started.yml]\nevaluation_interval: 1m\ntests:\n- interval: 1m\n  input_series:\n")
	for _, name := range slices.Sorted(maps.Keys(values)) {
		fmt.Fprintf(b, "  - {series: '%s', values: '%s'}\n", name, values[name])
	}
	b.WriteString("  promql_expr_test:\n")
	holds := func(at time.Duration, format string, args ...any) {
		fmt.Fprintf(b, "  - {expr: '%s', eval_time: %dm, exp_samples: [{labels: '{}', value: 1}]}\n", fmt.Sprintf(format, args...), int(at.Minutes()))
	}
	n := history.transitions()
	holds(day, "sum(last_over_time(penstock_endpoint_health_transitions_total[5m])) == bool %d", n)
	holds(day, "sum(count_over_time(started[1d])) <= bool %d", n*12/100)
	for _, o := range history.outages {
		which := fmt.Sprintf("upstream=%q,endpoint=~%q", o.upstream, o.name+"|")
		holds(o.to, "count(count_over_time(firing{%s}[%dm])) >= bool 1", which, int((o.to - o.from).Minutes()))
	}
	for _, f := range history.flapping {
		holds(f.to, "count(count_over_time(firing{alertname=%q,upstream=%q,endpoint=%q}[%dm])) >= bool 1",
			"PenstockEndpointFlapping", f.upstream, f.name, int((f.to - f.from).Minutes()))
	}
	return b.String()
}

// TestFlapping: over a day of endpoints that come and go, compressed to two minutes, operators get at most 12 % of
// the alerts that one for each transition would be, counted as alerts and as messages. Real outages, and endpoints
// that come and go for hours, are among them.
func TestFlapping(t *testing.T) {
	t.Parallel()
	full.Only(t, "two minutes of two other programs, whose timers have no other clock")
	if race.Enabled {
		t.Skip("a tenth of a second stands for a minute, which the detector has no time for: TestFlappingSimulated has the same rules on a clock of its own")
	}
	alertmanager := software.Need(t, "prometheus-alertmanager", "prometheus-alertmanager")
	software.Need(t, "prometheus", "prometheus")
	history := newReplay(15)
	on := &pager{alerts: make(map[string]alert)}
	web := httptest.NewServer(on)
	defer web.Close()

	dir := software.Dir(t, nil)
	configuration := strings.ReplaceAll(compress(read(t, "alertmanager", "alertmanager.yml")), "http://localhost:9099/alerts", web.URL)
	must(t, os.WriteFile(filepath.Join(dir, "alertmanager.yml"), []byte(configuration), 0o600))
	addr, _, _ := software.Addr(t)
	software.Service{
		Command: []string{alertmanager, "--config.file=alertmanager.yml", "--storage.path=data", "--web.listen-address=" + addr, "--cluster.listen-address="},
		Dir:     dir, Addr: addr, Stop: syscall.SIGTERM,
	}.Start(t)

	var begun atomic.Pointer[time.Time] // once Prometheus is ready
	now := func() time.Duration {
		if at := begun.Load(); at != nil {
			return min(time.Since(*at)*compressed, day)
		}
		return 0
	}
	exporter := httptest.NewServer(metrics.NewHandler(func(m *metrics.Sample) { history.sample(m, now()) }, metrics.DefaultLimits))
	defer exporter.Close()
	configuration = strings.NewReplacer("localhost:9464", strings.TrimPrefix(exporter.URL, "http://"), "localhost:9093", addr, "scrape_interval: 15s", "scrape_interval: 60s", "15s", "30s").Replace(read(t, "prometheus", "prometheus.yml"))
	p := startPrometheus(t, compress(configuration), map[string]string{
		"alerts.yml": compress(read(t, "prometheus", "alerts.yml")), "recording.yml": compress(read(t, "prometheus", "recording.yml")),
	}, "--rules.alert.resend-delay=1s")
	began := time.Now()
	begun.Store(&began)

	end := time.NewTimer(day/compressed + 3*time.Second) // and the interval of a group
	defer end.Stop()
	<-end.C
	p.returnsData("all transitions", fmt.Sprintf("sum(last_over_time(penstock_endpoint_health_transitions_total[10s])) == %d", history.transitions()))
	on.mu.Lock()
	defer on.mu.Unlock()
	naive := history.transitions()
	t.Logf("%d transitions, %d alerts (%.1f %%) in %d messages (%.1f %%)", naive,
		len(on.alerts), 100*float64(len(on.alerts))/float64(naive), on.messages, 100*float64(on.messages)/float64(naive))
	for name, n := range on.byName() {
		t.Logf("%s: %d", name, n)
	}
	if len(on.alerts)*100 > naive*12 || on.messages*100 > naive*12 {
		t.Errorf("operators get %d alerts in %d messages, of %d transitions", len(on.alerts), on.messages, naive)
	}
	if naive < 1000 {
		t.Errorf("only %d transitions", naive)
	}
	on.has(t, history, began)
}

func (p *pager) byName() map[string]int {
	counts := make(map[string]int)
	for _, a := range p.alerts {
		counts[a.Labels["alertname"]]++
	}
	return counts
}

// has checks that the outages and the endpoints that come and go were reported.
func (p *pager) has(t *testing.T, history *replay, began time.Time) {
	t.Helper()
	reported := func(upstream, name string, from, to time.Duration, names ...string) bool {
		for _, a := range p.alerts {
			at := a.StartsAt.Sub(began) * compressed
			if a.Labels["upstream"] == upstream && (name == "" || a.Labels["endpoint"] == name || a.Labels["alertname"] == "PenstockUpstreamDown") &&
				strings.Contains(fmt.Sprint(names), a.Labels["alertname"]) && at > from-4*time.Hour && at < to+2*time.Hour {
				return true
			}
		}
		return false
	}
	for _, o := range history.outages {
		if !reported(o.upstream, o.name, o.from, o.to, "PenstockUpstreamDown", "PenstockEndpointDown", "PenstockEndpointFlapping") {
			t.Errorf("not reported: %+v", o)
		}
	}
	for _, f := range history.flapping {
		if !reported(f.upstream, f.name, f.from, f.to, "PenstockEndpointFlapping") {
			t.Errorf("not reported: %+v", f)
		}
	}
}
