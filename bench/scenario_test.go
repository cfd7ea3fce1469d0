package bench_test

import (
	"strings"
	"testing"

	"github.com/penstock/penstock/bench"
	"github.com/penstock/penstock/internal/testutil/must"
)

func TestChooseScenarios(t *testing.T) {
	for names, want := range map[string]string{
		"":                 "",
		"idle bulk-8":      "bulk-8 idle",
		"bulk bulk-8":      "bulk-1 bulk-8 bulk-64",
		"echo-64":          "echo-64-1 echo-64-64",
		"echo":             "echo-64-1 echo-64-64 echo-4096-1 echo-4096-64",
		"echo-4096 bulk-1": "bulk-1 echo-4096-1 echo-4096-64",
	} {
		list := must.Get(bench.ChooseScenarios(strings.Fields(names)))(t)
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
