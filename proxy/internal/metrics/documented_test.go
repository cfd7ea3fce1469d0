package metrics

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite docs/metrics.md")

const (
	page  = "../../../docs/metrics.md"
	begin = "<!-- The rest is generated: go test ./proxy/internal/metrics -run Documented -update -->\n"
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
		t.Errorf("%s differs from the code: go test ./proxy/internal/metrics -run Documented -update", page)
	}
}

// reference is the generated part of the page.
func reference() string {
	var b strings.Builder
	section := func(title string, list []Family) {
		fmt.Fprintf(&b, "\n## %s\n\n| name | type | labels | meaning |\n|---|---|---|---|\n", title)
		for _, f := range list {
			labels := "`" + strings.Join(f.Labels, "`, `") + "`"
			if len(f.Labels) == 0 {
				labels = ""
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", f.Name, f.Kind, labels, f.Help)
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
	objects := slices.Concat(of("penstock_loop_"), of("penstock_listener_"), of("penstock_mirror_"), of("penstock_rewrite_"), of("penstock_upstream_"), of("penstock_endpoint_"))
	section("Process", slices.DeleteFunc(slices.Clone(all), func(f Family) bool {
		return slices.ContainsFunc(objects, func(o Family) bool { return o.Name == f.Name })
	}))
	section("Event loops", of("penstock_loop_"))
	section("Listeners", of("penstock_listener_"))
	section("Mirrors", of("penstock_mirror_"))
	section("Rewriting", of("penstock_rewrite_"))
	section("Filters", of("penstock_filter_"))
	section("Upstreams", of("penstock_upstream_"))
	section("Endpoints", of("penstock_endpoint_"))
	return b.String()
}
