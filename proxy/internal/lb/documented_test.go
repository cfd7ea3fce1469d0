package lb_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/penstock/penstock/proxy/internal/lb"
)

// TestPoliciesAreDocumented: docs/balancing.md has each policy in its tables, docs/comparison.md has a row for
// each, and docs/glossary.md names the keyed ones.
func TestPoliciesAreDocumented(t *testing.T) {
	page := read(t, "balancing.md")
	compared := read(t, "comparison.md")
	_, rest, _ := strings.Cut(page, "\n## Policies\n")
	choice, _, _ := strings.Cut(rest, "\n## ")
	_, rest, _ = strings.Cut(page, "\n## Cost\n")
	cost, _, _ := strings.Cut(rest, "\n## ")
	for _, p := range lb.Policies() {
		consistent := map[bool]string{true: "yes", false: "no"}[p.Keyed()]
		if !regexp.MustCompile("(?m)^\\| `" + p.String() + "` \\| [^|]+ \\| " + consistent + " \\| [^|]+ \\|$").MatchString(choice) {
			t.Errorf("docs/balancing.md, Policies: no row of %s, with consistent: %s", p, consistent)
		}
		if rows := regexp.MustCompile("(?m)^\\|[^|]*`"+p.String()+"`.*$").FindAllString(cost, -1); len(rows) != 2 {
			t.Errorf("docs/balancing.md, Cost: %s is in %d tables, want both: of a pick and of a new set", p, len(rows))
		}
		if !regexp.MustCompile("(?m)^\\| [^|]+ \\| yes: `" + p.String() + "` \\|").MatchString(compared) {
			t.Errorf("docs/comparison.md: no row of %s", p)
		}
	}
	var want []string
	for _, p := range keyed {
		want = append(want, p.String())
	}
	row := regexp.MustCompile(`(?m)^\| keyed policy \| One that chooses by the client: ([a-z_, ]+)\.`).FindStringSubmatch(read(t, "glossary.md"))
	if row == nil || !slices.Equal(strings.Split(row[1], ", "), want) {
		t.Errorf("docs/glossary.md, keyed policy: %q, want %q", row, want)
	}
}

func read(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/" + page)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
