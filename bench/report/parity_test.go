package report

import (
	"slices"
	"strings"
	"testing"
)

// parityDocument has one round of a baseline and of another contestant with the given requests
// and spliced bytes.
func parityDocument(requests int64, spliced Number) *Document {
	s := &Scenario{Name: "echo-64-1", Workload: "echo", Cells: []*Cell{
		{Contestant: "penstock", Role: Baseline}, {Contestant: "penstock-run", Role: Contender}, {Contestant: "penstock", Role: Again},
	}}
	trial := func(name string, role Role, beside string, requests int64, spliced Number) {
		s.Trials = append(s.Trials, &Trial{
			Contestant: name, Role: role, Round: 1, Beside: beside, ElapsedSeconds: 1, Requests: requests, CPUSeconds: 1,
			SentBytes: 500, ReceivedBytes: 500, SplicedBytes: spliced,
		})
	}
	trial("penstock", Baseline, "penstock-run", 1000, 500)
	trial("penstock-run", Contender, "penstock-run", requests, spliced)
	trial("penstock", Baseline, "again", 1000, 500)
	trial("penstock", Again, "again", 1010, 500)
	s.Summarize()
	return &Document{Method: Method{Baseline: "penstock"}, Scenarios: []*Scenario{s}}
}

func TestCompare(t *testing.T) {
	for name, test := range map[string]struct {
		requests int64
		spliced  Number
		want     []string
	}{
		"the same":    {1000, 500, nil},
		"nearly":      {955, 509, nil},
		"better":      {2000, 500, nil},
		"slower":      {900, 500, []string{"requests_per_second is 0.90 of", "cpu_seconds_per_request is 1.11 of"}},
		"another way": {1000, 400, []string{"40.0 % of the bytes spliced, 50.0 % by the baseline"}},
	} {
		d := parityDocument(test.requests, test.spliced)
		d.Compare()
		if len(d.Parities) != 2 || d.Parities[0].Noise == nil || d.Parities[0].Noise.Median != 1.01 {
			t.Errorf("%s: %+v", name, d.Parities)
		}
		got := d.Differences()
		if len(got) != len(test.want) {
			t.Errorf("%s: %q", name, got)
		}
		for _, want := range test.want {
			if !slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, want) }) {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
	}
}

// TestParityOfWhatFailed: an unmeasured figure is no parity.
func TestParityOfWhatFailed(t *testing.T) {
	d := parityDocument(1000, 500)
	d.Scenarios[0].Cells[1].Failed = "it is gone"
	d.Scenarios[0].Summarize()
	d.Compare()
	if got := d.Differences(); len(got) != 2 || !strings.HasSuffix(got[0], "was not measured") {
		t.Errorf("%q", got)
	}
	var b strings.Builder
	if err := d.WriteText(&b, 200); err != nil || !strings.Contains(b.String(), "\nWithin 5 % of penstock\n") || !strings.Contains(b.String(), string(Unjudged)) {
		t.Errorf("%v: %s", err, b.String())
	}
}
