package iperf3

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/bench"
	"github.com/penstock/penstock/bench/contestant"
	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/bench/rounds"
	"github.com/penstock/penstock/internal/testutil/child"
	"github.com/penstock/penstock/internal/testutil/tool"
)

// childName is the first argument of a test binary that runs as a part; its name and arguments
// follow.
const childName = "penstock-iperf3-test"

func TestMain(m *testing.M) {
	child.Main(m, childName, func(args []string) error {
		return bench.RunPart(context.Background(), args[0], args[1:], os.Stdin, os.Stdout)
	})
}

// setup is a comparison that takes a few seconds, with no proxy as the base.
func setup(t *testing.T) Setup {
	t.Helper()
	path, err := Find()
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	g := process.NewGroup()
	t.Cleanup(g.Close)
	s := Setup{
		Setup: rounds.Setup{Group: g, Rounds: 1}, Program: contestant.Program{Path: "/proc/self/exe", Name: childName}, Dir: t.TempDir(), Path: path,
		Flow: time.Second,
	}
	for _, name := range []string{"direct", "io.Copy"} {
		k, err := contestant.Named(name)
		if err != nil {
			t.Fatal(err)
		}
		s.Kinds = append(s.Kinds, k)
	}
	return s
}

func TestMeasure(t *testing.T) {
	s, c := setup(t), &tool.Tool{Events: 1000}
	s.Counter = c
	var turns []string
	s.Watch = func(p rounds.Progress) { turns = append(turns, fmt.Sprint(p.Round, " ", p.Contestant)) }
	r, err := Measure(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(turns, ", "); got != "1 direct, 1 io.Copy, 0 io.Copy" || len(c.PIDs) != 1 || r.SystemCallCounter != "a test" {
		t.Errorf("turns %s, counted of %v", got, c.PIDs)
	}
	direct, proxy := r.Rows[0], r.Rows[1]
	if m := direct.Median; m == nil || !(m.BitsPerSecond > 0) || m.Bytes <= 0 || m.CPUPerGB.Known() || direct.Throughput != nil || direct.CallsPerMB.Known() {
		t.Errorf("direct: %+v, %+v", direct, m)
	}
	if m := proxy.Median; m == nil || !(m.BitsPerSecond > 0) || !(m.CPUPerGB > 0) || m.Spliced.Known() || proxy.Throughput == nil || proxy.CPU != nil || !(proxy.CallsPerMB > 0) {
		t.Errorf("io.Copy: %+v, %+v", proxy, m)
	}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"bits_per_second":`, `"cpu_seconds_per_gb":null`, `"system_calls_per_mb":null`, `"flow_seconds":1`, `"spliced":null`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
}

func TestMeasureEndsWithItsContext(t *testing.T) {
	s := setup(t)
	s.Flow = time.Hour
	reason := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(200*time.Millisecond, func() { cancel(reason) })
	if r, err := Measure(ctx, s); !errors.Is(err, reason) || len(r.Rows) != 2 || r.Rows[0].Median != nil {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestAProxyThatDoesNotStartIsNamed(t *testing.T) {
	s := setup(t)
	s.Program.Path, s.Kinds = "/bin/false", s.Kinds[1:]
	if _, err := Measure(t.Context(), s); err == nil || !strings.HasPrefix(err.Error(), "io.Copy: ") || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v", err)
	}
}

func TestParse(t *testing.T) {
	ended := errors.New("it has ended")
	r, err := parse(`{"start": {}, "end": {
		"sum_sent": {"bytes": 1310000000, "retransmits": 7},
		"sum_received": {"bytes": 1300000000, "bits_per_second": 1.04e10}}}`, ended)
	if err != nil || r.End.Received.Bytes != 1300000000 || r.End.Received.BitsPerSecond != 1.04e10 || r.End.Sent.Retransmits != 7 {
		t.Errorf("%+v, %v", r, err)
	}
	f := r.figures(&contestant.Account{Spliced: 3, Copied: 1})
	if f.Spliced != 0.75 || f.Retransmits != 7 || f.BitsPerSecond != 1.04e10 {
		t.Errorf("%+v", f)
	}
	for text, want := range map[string]string{
		`{"start": {}, "end": {}, "error": "unable to connect to server"}`: "iperf3: unable to connect to server",
		`{"end": {"sum_received": {"bytes": 0}}}`:                          "iperf3 received nothing: it has ended",
		"iperf3: parameter error":                                          "it has ended (it said \"iperf3: parameter error\")",
		"":                                                                 "it has ended (it said \"\")",
	} {
		if _, err := parse(text, ended); err == nil || err.Error() != want {
			t.Errorf("%q: got %v", text, err)
		}
	}
}

// A ratio is the median of the ratios within rounds.
func TestRatiosAreOfRounds(t *testing.T) {
	flows := func(bits ...report.Number) (all []Figures) {
		for _, x := range bits {
			all = append(all, Figures{BitsPerSecond: x, CPUPerGB: report.Unmeasured()})
		}
		return all
	}
	base, r := Row{Flows: flows(1, 2, 4)}, Row{Flows: flows(2, 2, 4)}
	r.sum(&base)
	if b := r.Throughput; b == nil || b.Median != 1 || b.Low != 1 || b.High != 2 || b.Values != 3 || r.CPU != nil {
		t.Errorf("%+v, %+v", b, r.CPU)
	}
}

func TestWholeSeconds(t *testing.T) {
	for d, want := range map[time.Duration]int{0: 1, 1400 * time.Millisecond: 1, 30 * time.Second: 30} {
		if got := seconds(d); got != want {
			t.Errorf("%v: %d", d, got)
		}
	}
}
