package bench_test

import (
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
		set  bench.Thresholds
		want []string
	}{
		{bench.Thresholds{Failed: 3, ChatP99: 100 * time.Millisecond, Bulk: 5e8}, nil},
		{bench.Thresholds{Failed: 3}, nil},
		{bench.Thresholds{Failed: 2}, []string{"mix, penstock: 3 failed, more than 2 (--max-failed): short: a reset"}},
		{bench.Thresholds{Failed: 3, ChatP99: 99 * time.Millisecond}, []string{"mix, penstock: chat p99 is 100 ms, more than 99ms (--max-chat-p99)"}},
		{bench.Thresholds{Failed: 3, Bulk: 6e8}, []string{"mix, penstock: bulk is 500 MB/s, less than 600 MB/s (--min-bulk)"}},
		{bench.Thresholds{ChatP99: 1, Bulk: 1e12}, []string{"3 failed", "chat p99", "bulk"}},
	} {
		got := test.set.Missed(doc)
		if len(got) != len(test.want) {
			t.Errorf("%+v: %q", test.set, got)
			continue
		}
		for i := range got {
			if !strings.Contains(got[i], test.want[i]) {
				t.Errorf("%+v: %q, want %q", test.set, got[i], test.want[i])
			}
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
	set := bench.Thresholds{ChatP99: time.Second, Bulk: 1}
	if got := set.Missed(&report.Document{Scenarios: []*report.Scenario{s}}); len(got) != 2 {
		t.Errorf("got %q", got)
	}
}
