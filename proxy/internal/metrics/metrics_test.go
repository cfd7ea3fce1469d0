package metrics

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/internal/tally"
	"github.com/penstock/penstock/proxy/internal/verdict"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

func scrape(tb testing.TB, h *Handler, accept string) (kind, body string) {
	tb.Helper()
	r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	r.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		tb.Fatalf("%d: %s", w.Code, w.Body)
	}
	return w.Header().Get("Content-Type"), w.Body.String()
}

func filled() *Handler {
	return NewHandler(func(s *Sample) { *s = *full() }, DefaultLimits)
}

func parse(tb testing.TB, text string) map[string]*dto.MetricFamily {
	tb.Helper()
	p := expfmt.NewTextParser(model.UTF8Validation)
	families, err := p.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		tb.Fatalf("%v in\n%s", err, text)
	}
	return families
}

// TestEncoderAgrees: what the encoder writes is, byte for byte, what client_golang writes of the same series,
// in both formats. Only OpenMetrics' fraction of whole numbers is left out, which is optional.
func TestEncoderAgrees(t *testing.T) {
	_, text := scrape(t, filled(), "text/plain")
	_, open := scrape(t, filled(), "application/openmetrics-text;version=1.0.0")
	parsed := parse(t, text)
	fraction := regexp.MustCompile(`(?m)( -?\d+)\.0$`)
	for _, f := range Families() {
		if strings.HasPrefix(f.Name, "penstock_loop_") && f.Kind == Histogram {
			continue // they have no sum, which client_golang cannot write
		}
		family := parsed[f.Name]
		if family == nil {
			t.Errorf("no %s", f.Name)
			continue
		}
		var want bytes.Buffer
		if _, err := expfmt.MetricFamilyToText(&want, family); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(text, want.String()) {
			t.Errorf("not in the text:\n%s", cmp.Diff(want.String(), part(text, f.Name)))
		}
		want.Reset()
		if _, err := expfmt.MetricFamilyToOpenMetrics(&want, family); err != nil {
			t.Fatal(err)
		}
		normal := func(s string) string { return fraction.ReplaceAllString(s, "$1") }
		if !strings.Contains(normal(open), normal(want.String())) {
			t.Errorf("not in OpenMetrics:\n%s", cmp.Diff(normal(want.String()), normal(part(open, strings.TrimSuffix(f.Name, "_total")))))
		}
	}
	if !strings.HasSuffix(open, "\n# EOF\n") || strings.Count(open, "# EOF") != 1 {
		t.Error("OpenMetrics does not end with one # EOF")
	}
	if strings.Contains(text, "# EOF") {
		t.Error("the text has an # EOF")
	}
}

func part(text, name string) string {
	_, rest, _ := strings.Cut(text, "# HELP "+name+" ")
	lines, _, _ := strings.Cut(rest, "\n# HELP")
	return "# HELP " + name + " " + lines + "\n"
}

// TestLoopHistograms: counts by powers of two become buckets whose counts rise up to all of them.
func TestLoopHistograms(t *testing.T) {
	_, text := scrape(t, filled(), "text/plain")
	for _, want := range []string{
		`penstock_loop_turn_seconds_bucket{loop="0",le="1.6e-05"} 1`, `penstock_loop_turn_seconds_bucket{loop="0",le="6.4e-05"} 3`,
		`penstock_loop_turn_seconds_bucket{loop="0",le="1.048576"} 3`, `penstock_loop_turn_seconds_bucket{loop="0",le="+Inf"} 6`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("no %s in\n%s", want, part(text, "penstock_loop_turn_seconds"))
		}
	}
}

// TestRuntime: the collectors of the Go runtime and of the process are there.
func TestRuntime(t *testing.T) {
	_, text := scrape(t, filled(), "text/plain")
	for _, name := range []string{"go_gc_duration_seconds", "process_open_fds", "process_max_fds", "process_start_time_seconds"} {
		if !strings.Contains(text, "\n# TYPE "+name+" ") {
			t.Errorf("no %s", name)
		}
	}
}

// TestNegotiation: Prometheus gets OpenMetrics, one that prefers the protobuf gets text, and none is compressed.
func TestNegotiation(t *testing.T) {
	for accept, want := range map[string]string{
		"": "text/plain", "*/*": "text/plain",
		"application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1": "application/openmetrics-text",
		"application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.7,text/plain;version=0.0.4;q=0.3":       "text/plain",
	} {
		if kind, _ := scrape(t, filled(), accept); !strings.HasPrefix(kind, want+";") {
			t.Errorf("%s: %s, want %s", accept, kind, want)
		}
	}
}

// TestLimits: objects beyond the limits have no series, and are counted.
func TestLimits(t *testing.T) {
	h := NewHandler(func(s *Sample) {
		for i := range 5 {
			s.Listeners = append(s.Listeners, Listener{Listener: admin.Listener{Name: fmt.Sprint("l", i)}})
			s.Upstreams = append(s.Upstreams, Upstream{Upstream: admin.Upstream{Name: fmt.Sprint("u", i)}})
			s.Endpoints = append(s.Endpoints, Endpoint{Upstream: "u", Endpoint: admin.Endpoint{Name: fmt.Sprint("e", i)}})
		}
	}, Limits{Listeners: 1, Upstreams: 2, Endpoints: 4, EndpointHistograms: 3})
	_, text := scrape(t, h, "text/plain")
	for family, want := range map[string]int{
		"penstock_listener_accepted_total": 1, "penstock_upstream_waiting": 2, "penstock_endpoint_up": 4, "penstock_endpoint_connect_seconds": 3, "penstock_endpoint_answer_seconds": 3,
	} {
		if got := len(parse(t, text)[family].GetMetric()); got != want {
			t.Errorf("%s: %d objects, want %d", family, got, want)
		}
	}
	for of, want := range map[string]int{"listeners": 4, "upstreams": 3, "endpoints": 1, "endpoint_histograms": 2} {
		if line := fmt.Sprintf("penstock_series_dropped{of=%q} %d\n", of, want); !strings.Contains(text, line) {
			t.Errorf("no %s", line)
		}
	}
}

// TestScraperThatLeaves: a scraper that has gone while the loops do not answer gets no answer, and no more samples are
// read at once than may be until the loops have answered.
func TestScraperThatLeaves(t *testing.T) {
	entered, leave := make(chan struct{}, maxReading+1), make(chan struct{})
	h := NewHandler(func(*Sample) { entered <- struct{}{}; <-leave }, DefaultLimits)
	get := func(gone bool) int {
		r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
		ctx, cancel := contextOf(r)
		defer cancel()
		if gone {
			cancel()
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r.WithContext(ctx))
		return w.Code
	}
	for len(entered) < maxReading { // one that has gone may be refused at once
		if code := get(true); code != http.StatusServiceUnavailable {
			t.Errorf("got %d", code)
		}
	}
	for range 10 {
		get(true)
	}
	if n := len(entered); n != maxReading {
		t.Errorf("%d samples are being read", n)
	}
	close(leave)
	if code := get(false); code != http.StatusOK {
		t.Errorf("afterwards: %d", code)
	}
}

// TestNames: names and labels follow the rules of Prometheus, and none is there twice.
func TestNames(t *testing.T) {
	name := regexp.MustCompile(`^penstock_[a-z]+(_[a-z]+)*$`)
	var seen []string
	for _, f := range Families() {
		switch {
		case !name.MatchString(f.Name):
			t.Errorf("%s is no name", f.Name)
		case (f.Kind == Counter) != strings.HasSuffix(f.Name, "_total"):
			t.Errorf("%s is a %s", f.Name, f.Kind)
		case f.Kind == Histogram && !strings.HasSuffix(f.Name, "_seconds"):
			t.Errorf("%s has no unit", f.Name)
		case slices.Contains(seen, f.Name):
			t.Errorf("%s is there twice", f.Name)
		case !strings.HasSuffix(f.Help, ".") || strings.ContainsAny(f.Help, "\n\\"):
			t.Errorf("%s: help %q", f.Name, f.Help)
		}
		seen = append(seen, f.Name)
	}
}

// TestDropsFromTheBeginning: dropped lines and spans have a series for each reason from 0 on, so that the first one is
// a rate; without a session log and traces, too.
func TestDropsFromTheBeginning(t *testing.T) {
	empty := NewHandler(func(s *Sample) { *s = Sample{} }, DefaultLimits)
	_, none := scrape(t, empty, "text/plain")
	_, some := scrape(t, filled(), "text/plain")
	for name, want := range map[string]map[string][2]float64{
		"penstock_session_log_dropped_total": {"queue": {0, 2}, "destination": {}, "rate": {}},
		"penstock_spans_dropped_total":       {"queue_full": {}, "refused": {0, 1}, "unavailable": {}, "shutdown": {}},
	} {
		for i, text := range []string{none, some} {
			got := make(map[string]float64)
			for _, m := range parse(t, text)[name].GetMetric() {
				got[m.Label[0].GetValue()] = m.GetCounter().GetValue()
			}
			if len(got) != len(want) {
				t.Errorf("%s: %v", name, got)
			}
			for reason, n := range want {
				if v, ok := got[reason]; !ok || v != n[i] {
					t.Errorf("%s of %s: %v, want %v", name, reason, v, n[i])
				}
			}
		}
	}
}

// TestLaneCounts: the counts of the lane of the status are counters.
func TestLaneCounts(t *testing.T) {
	_, text := scrape(t, filled(), "text/plain")
	for _, want := range []string{"penstock_lane_adopted_total 5", "penstock_lane_ended_total 6", "penstock_lane_reset_total 2"} {
		if !strings.Contains(text, "\n"+want+"\n") {
			t.Errorf("no %q", want)
		}
	}
}

var update = flag.Bool("update", false, "rewrite docs/metrics.md")

const (
	page  = "../../../docs/metrics.md"
	begin = "<!-- The rest is generated: .ci/run generate -->\n"
)

// TestDocumented: docs/metrics.md has each family as the code has it.
func TestDocumented(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	prose, generated, ok := strings.Cut(string(text), begin)
	if !ok {
		t.Fatalf("%s has no line %q", page, begin)
	}
	want := reference()
	if *update {
		if err := os.WriteFile(page, []byte(prose+begin+want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if generated != want {
		t.Errorf("%s differs from the code: .ci/run generate", page)
	}
}

func reference() string {
	var b strings.Builder
	first := make(map[[2]string]string) // the names of families that other objects have too, by the rest of the name and the text
	meaning := func(f *Family) string {
		_, rest, _ := strings.Cut(strings.TrimPrefix(f.Name, "penstock_"), "_")
		key := [2]string{rest, f.Help}
		if name := first[key]; name != "" {
			return "As `" + name + "`."
		}
		first[key] = f.Name
		return f.Help
	}
	section := func(title string, list []Family, shared ...string) {
		fmt.Fprintf(&b, "\n## %s\n", title)
		if len(shared) > 0 {
			fmt.Fprintf(&b, "\nBeside `%s`:\n", strings.Join(shared, "` and `"))
		}
		b.WriteString("\n| name | labels | meaning |\n|---|---|---|\n")
		for _, f := range list {
			var kind []string
			if f.Kind == Histogram {
				kind = append(kind, "histogram")
			}
			for _, label := range f.Labels[len(shared):] {
				kind = append(kind, "`"+label+"`")
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", f.Name, strings.Join(kind, ", "), meaning(&f))
		}
	}
	all := Families()
	of := func(prefix string) (list []Family) {
		for _, f := range all {
			if strings.HasPrefix(f.Name, prefix) {
				list = append(list, f)
			}
		}
		return list
	}
	objects := slices.Concat(of("penstock_loop_"), of("penstock_listener_"), of("penstock_mirror_"), of("penstock_rewrite_"), of("penstock_filter_"), of("penstock_upstream_"), of("penstock_endpoint_"))
	section("Process", slices.DeleteFunc(slices.Clone(all), func(f Family) bool {
		return slices.ContainsFunc(objects, func(o Family) bool { return o.Name == f.Name })
	}))
	section("Event loops", of("penstock_loop_"), "loop")
	section("Listeners", of("penstock_listener_"), "listener")
	section("Mirrors", of("penstock_mirror_"), "listener")
	section("Rewriting", of("penstock_rewrite_"), "listener")
	section("Filters", of("penstock_filter_"), "listener", "filter")
	section("Upstreams", of("penstock_upstream_"), "upstream")
	section("Endpoints", of("penstock_endpoint_"), "upstream", "endpoint")
	return b.String()
}

// full returns a sample in which every family has series, of small whole numbers and times that have the
// same text in each format.
func full() *Sample {
	var t tally.Tally
	t.Connected(0, 2*time.Second)
	t.Connected(1, 4*time.Second)
	for why := range tally.Closes {
		t.Ended(0, time.Second, why)
	}
	counts := t.Read()
	at := time.Unix(1000, 0)
	bytes := admin.Bytes{ClientToEndpoint: admin.ByEngine{Spliced: 1, Copied: 2}, EndpointToClient: admin.ByEngine{Spliced: 3, Copied: 4}}
	from := time.Unix(0, 0)
	certificates := []admin.Certificate{{Path: `/a"b\c` + "\n", From: from, Ends: at}, {Path: `/a"b\c` + "\n", From: from, Ends: at}, {Path: "/\xff", From: from, Ends: at}, {Path: "/\xfe", From: from, Ends: at}}
	handshakes := &admin.Handshakes{HandshakeCounts: tally.HandshakeCounts{Completed: 5, Resumed: 2}, Failed: map[string]int64{"timeout": 1}}
	queues := []admin.Queue{
		{Address: "127.0.0.1:80", Known: true, Length: 1, Most: 2, Dropped: 3, DroppedKnown: true},
		{Address: "unix:/run/x", Known: false},
	}
	return &Sample{
		Process: Process{
			Status: admin.Status{
				Version: "v1", Counters: map[string]int64{"transitions": 1, "hellos_missing": 2}, Summary: admin.Summary{Connections: admin.Connections{Most: 9}, Lane: &admin.Lane{State: admin.LaneOn, Active: 1, Left: 2, Wanted: true, Adopted: 5, Ended: 6, Reset: 2, Returned: 1, Gaps: 4, Stays: map[string]int64{"mirror": 3}, Unrestored: map[string]int64{"address is taken": 1}}, Fallbacks: map[string]int64{"size": 1}, SessionLog: &admin.SessionLog{Lines: 7, Dropped: map[string]int64{"queue": 2}, Filtered: 3}},
				Traces: &admin.Traces{Sampled: 6, Queued: 1, Exported: 3, Unconfirmed: 1, Dropped: map[string]int64{"refused": 1}},
			},
			Refusals: []tally.Count{{Of: "tls", N: 1}, {Of: "upstream", N: 0}},
		},
		Config: Config{Generation: 2, File: FileDiffers, LastOK: true, LastSuccess: at},
		Loops:  []Loop{{Loop: admin.Loop{Lag: []int64{0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3}, TimerLate: []int64{1}}, Measured: true}},
		Listeners: []Listener{{
			Refused: []tally.Count{{Of: "address", N: 1}, {Of: "other", N: 0}}, Tally: counts, Seconds: [verdict.Kinds]float64{verdict.Client: 1.25},
			KeyedBy: "sni", Keyed: []Keyed{{Value: "a.test", Sessions: 3, Bytes: bytes}, {Value: "other", Sessions: 1}},
			Listener: admin.Listener{
				Name: "web", State: admin.Paused, Connections: admin.Connections{Accepted: 9, Active: 1, Most: 5}, Bytes: bytes,
				Pauses: map[string]int64{"process per_second": 2}, Queues: queues, Certificates: certificates, Handshakes: handshakes,
				Rewrites: &admin.Rewrites{Sessions: 3, Bytes: 1000, Calls: 7, TimeUs: 2500000, Reset: map[string]int64{"trap": 1, "timeout": 0}, Passed: map[string]int64{"trap": 0, "timeout": 2}, Modules: []admin.RewriteModule{{File: "a.wasm"}}},
				Mirrors: &admin.Mirrors{MirrorCounts: tally.MirrorCounts{Running: 2, Teed: 4, Copied: 3, Undelivered: 2, Answered: 1}, Ended: map[string]int64{"late": 1, "complete": 0}, Comparisons: []admin.Comparison{
					{Stopped: map[string]int64{"full": 1}, ComparedAnswers: admin.ComparedAnswers{Equal: 5, Different: 1, Masked: 2, Unsettled: 3, Lag: admin.ShadowLag{Slower: 4, Faster: 2}}},
					{Stopped: map[string]int64{"full": 2, "budget": 1}, ComparedAnswers: admin.ComparedAnswers{Equal: 1, Lag: admin.ShadowLag{Alike: 1}}},
				}},
				Filters: []admin.Filter{{
					Name: "names", Calls: 4, TimeUs: 40, Answers: map[string]int64{"allow": 2, "deny": 1}, Failures: map[string]int64{"trap": 1}, Waiting: 1,
					Times: []int64{0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1},
				}},
				Protocols: map[string]int64{"ssh": 3, "other": 1},
				Cancels:   &admin.Cancels{Requests: 2, Sent: 3, Failed: 1},
			},
		}},
		Upstreams: []Upstream{{
			Tally: counts, Refused: []tally.Count{{Of: "full", N: 1}}, States: map[admin.State]int64{admin.Up: 2}, FallbackServes: new(bool),
			Upstream: admin.Upstream{
				Name: "shop", Breaker: "half-open", Opened: 1, Most: 4, MostConnecting: 2, Connections: 3, Connecting: 1, Bytes: bytes,
				LocalFaults: map[string]int64{"too many open files": 1},
				Discovery:   &admin.Discovery{Kind: "dns", Confirmed: at, Failures: 1, Stale: true}, Certificates: certificates, Handshakes: handshakes,
			},
		}},
		Endpoints: []Endpoint{
			{Upstream: "shop", Endpoint: admin.Endpoint{Name: "a", State: admin.Up, Max: 3, Weight: 1, Opened: 1, Bytes: bytes}, Tally: counts, AnswerTimes: []int64{10: 2, 23: 1}, Answered: 9 * time.Second},
			{Upstream: "shop", Endpoint: admin.Endpoint{Name: "b", State: admin.Down, Weight: 1}, Tally: counts},
		},
	}
}

func contextOf(r *http.Request) (context.Context, context.CancelFunc) {
	return context.WithCancel(r.Context())
}
