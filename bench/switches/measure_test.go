package switches

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/bench/rounds"
	"github.com/penstock/penstock/internal/testutil/tool"
)

// few is enough connections to distinguish one thread per connection from a
// handful.
const few = 40

// setup is a comparison that takes a second.
func setup(t *testing.T) Setup {
	t.Helper()
	g := process.NewGroup()
	t.Cleanup(g.Close)
	return Setup{
		Setup: rounds.Setup{Group: g, Rounds: 2}, Load: spec(partLoad), Server: spec,
		Connections: []int{few}, Window: 100 * time.Millisecond,
	}
}

func TestMeasure(t *testing.T) {
	s := setup(t)
	var turns []string
	s.Watch = func(p rounds.Progress) { turns = append(turns, fmt.Sprint(p.Round, " ", p.Contestant)) }
	r, err := Measure(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"1 threads", "1 goroutines", "1 loops", "1 coroutines", "2 coroutines", "2 loops", "2 goroutines", "2 threads"}; !slices.Equal(turns, want) {
		t.Errorf("turns %q, want %q", turns, want)
	}
	checkJSON(t, r)
	rows := r.Groups[0].Rows
	for i := range rows {
		row := &rows[i]
		if len(row.Trials) != s.Rounds || row.Median == nil || row.Missing != "" {
			t.Fatalf("%s: %+v", row.Server, row)
		}
		for j, f := range row.Median.figures()[:8] { // threads are checked below
			if !(*f > 0) {
				t.Errorf("%s: figure %d is %v", row.Server, j, *f)
			}
		}
		// The mean exceeds the 99th percentile if one request in a thousand took very long.
		if m := row.Median; m.P50 > m.P99 || m.Mean < 0.4*m.P50 {
			t.Errorf("%s: latencies %v, %v, %v", row.Server, m.Mean, m.P50, m.P99)
		}
		if row.CallsPerRequest.Known() || row.CallsFailed != "" {
			t.Errorf("%s: system calls that were not counted", row.Server)
		}
		// Little's law holds in a closed loop: the figures of the server and of the load must
		// match. On a machine whose speed varies the window is only a part of the trial.
		if n := float64(row.Median.Mean * row.Median.RequestsPerSecond); n < few/10 || n > few*10 {
			t.Errorf("%s: %v requests in flight on %d connections", row.Server, n, few)
		}
	}
	// The Go runtime has further threads of its own.
	if n := rows[0].Median.ThreadsPerConnection; n < 1 {
		t.Errorf("%v threads per connection", n)
	}
	if n := rows[1].Median.ThreadsPerConnection; n >= rows[0].Median.ThreadsPerConnection {
		t.Errorf("%v threads per goroutine", n)
	}
	if rows[0].Ratio != nil || rows[1].Ratio == nil || !(rows[1].Ratio.RequestsPerSecond > 0) {
		t.Errorf("ratios %v, %v", rows[0].Ratio, rows[1].Ratio)
	}
	for i, name := range []string{"loops", "coroutines"} {
		if n := rows[2+i].Median.ThreadsPerConnection; rows[2+i].Server != name || n >= rows[0].Median.ThreadsPerConnection {
			t.Errorf("%s: %v threads per connection", rows[2+i].Server, n)
		}
	}
}

func TestSystemCallsAreCountedInARunOfTheirOwn(t *testing.T) {
	s, c := setup(t), &tool.Tool{Events: 1_000_000}
	s.Rounds, s.Counter = 1, c
	r, err := Measure(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if r.SystemCallCounter != "a test" || len(c.PIDs) != 4 || c.PIDs[0] == c.PIDs[1] {
		t.Errorf("counted by %q of %v", r.SystemCallCounter, c.PIDs)
	}
	for _, row := range r.Groups[0].Rows {
		if row.CallsFailed != "" || !(row.CallsPerRequest > 0) {
			t.Errorf("%s: %v calls per request, %q", row.Server, row.CallsPerRequest, row.CallsFailed)
		}
		if row.CallsPerSecond != row.CallsPerRequest*row.Median.RequestsPerSecond {
			t.Errorf("%s: %v calls per second", row.Server, row.CallsPerSecond)
		}
	}
}

func TestAToolThatFailsCostsItsFigureOnly(t *testing.T) {
	s := setup(t)
	s.Rounds, s.Counter = 1, &tool.Tool{Err: errors.New("not permitted")}
	r, err := Measure(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range r.Groups[0].Rows {
		if row.CallsFailed != "not permitted" || row.CallsPerRequest.Known() || row.Median == nil {
			t.Errorf("%s: %+v", row.Server, row)
		}
	}
}

func TestAServerWithoutThreadsIsLeftOut(t *testing.T) {
	s := setup(t)
	s.Rounds = 1
	s.Server = func(part string) process.Spec {
		if part == "switches-threads" {
			part = partMute
		}
		return spec(part)
	}
	r, err := Measure(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	rows := r.Groups[0].Rows
	if want := "the kernel refused a thread: failed to create"; !strings.HasPrefix(rows[0].Missing, want) || rows[0].Median != nil {
		t.Errorf("threads: %+v", rows[0])
	}
	if rows[1].Median == nil || rows[1].Ratio != nil {
		t.Errorf("goroutines: %+v", rows[1])
	}
}

func TestMoreConnectionsThanDescriptorsAreLeftOut(t *testing.T) {
	s := setup(t)
	s.Rounds, s.Connections = 1, []int{math.MaxInt32, few}
	r, err := Measure(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range r.Groups[0].Rows {
		if !strings.Contains(row.Missing, " allows ") || row.Trials != nil {
			t.Errorf("%s: %+v", row.Server, row)
		}
	}
	if r.Groups[1].Rows[0].Median == nil {
		t.Error("the allowed number was left out as well")
	}
}

func TestMeasureEndsWithItsContext(t *testing.T) {
	s := setup(t)
	s.Window = time.Hour
	reason := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(300*time.Millisecond, func() { cancel(reason) })
	if _, err := Measure(ctx, s); !errors.Is(err, reason) {
		t.Errorf("got %v", err)
	}
}

func TestWhatWasMeasuredUntilTheEndIsReturned(t *testing.T) {
	s := setup(t)
	s.Connections, s.Rounds = []int{few, few + 1}, 100
	ctx, cancel := context.WithCancelCause(t.Context())
	reason, trials := errors.New("enough"), 0
	s.Watch = func(rounds.Progress) {
		if trials++; trials == 7 { // threads, goroutines, loops, coroutines, coroutines, loops, goroutines
			cancel(reason)
		}
	}
	r, err := Measure(ctx, s)
	if !errors.Is(err, reason) || len(r.Groups) != 1 {
		t.Fatalf("%v, %+v", err, r)
	}
	rows := r.Groups[0].Rows
	if len(rows[0].Trials) != 1 || len(rows[1].Trials) != 2 || rows[0].Median == nil || rows[1].Ratio == nil || rows[0].CallsPerRequest.Known() {
		t.Errorf("%+v", rows)
	}
}

func TestADeadServerIsNamed(t *testing.T) {
	s := setup(t)
	s.Server = func(string) process.Spec {
		return process.Spec{Name: "server", Path: "/bin/false", Args: []string{"false"}}
	}
	_, err := Measure(t.Context(), s)
	var ended *process.EndedError
	if !errors.As(err, &ended) || ended.Name != "server" || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v", err)
	}
}

// checkJSON compares a report with the documentation of its JSON.
func checkJSON(t *testing.T, r *Report) {
	t.Helper()
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Groups []struct {
			Connections int
			Servers     []map[string]any
		}
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	servers := got.Groups[0].Servers
	if got.Groups[0].Connections != few || len(servers) != 4 {
		t.Fatalf("got %s", text)
	}
	median, _ := servers[0]["median"].(map[string]any)
	for _, name := range []string{
		"requests_per_second", "switches_per_second", "switches_per_request", "cpu_seconds_per_request",
		"mean_seconds", "p50_seconds", "p99_seconds", "memory_bytes_per_connection", "threads_per_connection",
	} {
		if x, ok := median[name].(float64); !ok || x <= 0 {
			t.Errorf("%s is %v", name, median[name])
		}
	}
	if calls, ok := servers[0]["system_calls_per_request"]; !ok || calls != nil {
		t.Errorf("system_calls_per_request is %v, want null", calls)
	}
	if ratio, _ := servers[2]["ratio_to_threads"].(map[string]any); ratio["requests_per_second"] == nil {
		t.Errorf("the loops have no ratio: %v", servers[2])
	}
}
