package router_test

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/penstock/penstock/proxy/internal/router"
)

// TestRefusalsAreDocumented: docs/failures.md has a row for each reason by which upstreams and
// listeners count refusals, and for no other one. The row has its meaning and its remedy.
func TestRefusalsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../../docs/failures.md")
	if err != nil {
		t.Fatal(err)
	}
	upstream, listener := router.RefusalReasons()
	for by, want := range map[string][]string{"upstream": upstream, "listener": listener} {
		var got []string
		for _, row := range regexp.MustCompile(`(?m)^\| `+by+` \| `+"`([a-z_]+)`"+` \| [^|]{20,} \| [^|]{10,} \|$`).FindAllSubmatch(text, -1) {
			got = append(got, string(row[1]))
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("of %ss it has %q, want %q", by, got, want)
		}
	}
}
