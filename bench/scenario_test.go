package bench_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/bench"
	"github.com/penstock/penstock/bench/report"
)

func TestChooseScenarios(t *testing.T) {
	for names, want := range map[string]string{
		"":                 "",
		"mix":              "mix",
		"idle bulk-8":      "bulk-8 idle",
		"bulk bulk-8":      "bulk-1 bulk-8 bulk-64",
		"echo-64":          "echo-64-1 echo-64-64",
		"echo":             "echo-64-1 echo-64-64 echo-4096-1 echo-4096-64",
		"echo-4096 bulk-1": "bulk-1 echo-4096-1 echo-4096-64",
	} {
		list, err := bench.ChooseScenarios(strings.Fields(names))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range list {
			got = append(got, s.Name)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q: %v, want %s", names, got, want)
		}
	}
	for _, name := range []string{"bul", "bulk-", "", "echo-6", "Bulk"} {
		if _, err := bench.ChooseScenarios([]string{name}); err == nil || !strings.Contains(err.Error(), "echo-4096-64, connections") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestThresholds(t *testing.T) {
	trial := func(contestant string, failed int64) *report.Trial {
		x := &report.Trial{Contestant: contestant, Role: report.Contender, Round: 1, ElapsedSeconds: 1}
		x.Classes = []report.Class{
			{Name: "chat", Done: 100, LatencyP99Seconds: 0.1},
			{Name: "bulk", Done: 1, BytesPerSecond: 5e8},
			{Name: "short", Done: 10, Failed: failed, Said: "a reset"},
		}
		return x
	}
	s := &report.Scenario{
		Name: "mix", Workload: "mix",
		Cells:  []*report.Cell{{Contestant: "penstock", Role: report.Contender}, {Contestant: "nginx", Role: report.Contender}},
		Trials: []*report.Trial{trial("penstock", 2), trial("penstock", 1), trial("nginx", 50)},
	}
	s.Summarize()
	doc := &report.Document{Scenarios: []*report.Scenario{s}}
	for _, test := range []struct {
		failed int64
		p99    time.Duration
		want   []string
	}{
		{3, 100 * time.Millisecond, nil},
		{3, 0, nil},
		{2, 0, []string{"mix, penstock: 3 failed, more than 2 (--max-failed): short: a reset"}},
		{3, 99 * time.Millisecond, []string{"mix, penstock: chat p99 is 100 ms, more than 99ms (--max-chat-p99)"}},
		{0, 1, []string{"mix, penstock: 3 failed, more than 0 (--max-failed): short: a reset", "mix, penstock: chat p99 is 100 ms, more than 1ns (--max-chat-p99)"}},
	} {
		if got := bench.Missed(doc, test.failed, test.p99); !slices.Equal(got, test.want) {
			t.Errorf("%+v: %q", test, got)
		}
	}
}

// An unmeasured figure reaches no threshold.
func TestThresholdOfNothing(t *testing.T) {
	s := &report.Scenario{
		Name: "mix", Workload: "mix", Cells: []*report.Cell{{Contestant: "penstock", Role: report.Contender}},
		Trials: []*report.Trial{{Contestant: "penstock", Role: report.Contender, ElapsedSeconds: 1, Classes: []report.Class{{Name: "short", Done: 1}}}},
	}
	s.Summarize()
	if got := bench.Missed(&report.Document{Scenarios: []*report.Scenario{s}}, 0, time.Second); len(got) != 1 {
		t.Errorf("got %q", got)
	}
}
