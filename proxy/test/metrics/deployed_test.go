package metrics

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/penstock/penstock/internal/testutil/software"
)

// deploy is the folder of rules, dashboard, runbooks and examples.
const deploy = "../../../deploy"

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func read(t testing.TB, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(append([]string{deploy}, path...)...))
	must(t, err)
	return string(text)
}

type rule struct {
	Alert, Record string
	Expr          string
	For           string
	Labels        map[string]string
	Annotations   map[string]string
}

func rules(t testing.TB, file string) (list []rule) {
	t.Helper()
	var groups struct{ Groups []struct{ Rules []rule } }
	must(t, yaml.Unmarshal([]byte(read(t, "prometheus", file)), &groups))
	for _, g := range groups.Groups {
		list = append(list, g.Rules...)
	}
	return list
}

// comparison is the threshold at the end of an alert's expression.
var comparison = regexp.MustCompile(` (==|<|>|<=|>=) [0-9.]+$`)

// panelQueries returns the queries of the dashboard by their panels' titles, with all variables at their
// values for everything.
func panelQueries(t testing.TB) map[string][]string {
	t.Helper()
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
		Templating struct {
			List []struct {
				Name  string
				Query json.RawMessage
			}
		}
	}
	must(t, json.Unmarshal([]byte(read(t, "grafana", "penstock.json")), &board))
	all := strings.NewReplacer("$__rate_interval", "1m", "$job", ".*", "$instance", ".*", "$listener", ".*", "$upstream", ".*")
	queries := make(map[string][]string)
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			queries[p.Title] = append(queries[p.Title], all.Replace(target.Expr))
		}
	}
	values := regexp.MustCompile(`label_values\((.*), [a-z]+\)`)
	for _, v := range board.Templating.List {
		if m := values.FindStringSubmatch(strings.ReplaceAll(string(v.Query), `\"`, `"`)); m != nil {
			queries["variable "+v.Name] = append(queries["variable "+v.Name], all.Replace(m[1]))
		}
	}
	return queries
}

// TestRules: Prometheus's own tools accept the rules and the examples, and the rules pass their unit tests.
func TestRules(t *testing.T) {
	promtool, amtool := software.Need(t, "promtool", "prometheus"), software.Need(t, "amtool", "prometheus-alertmanager")
	in := func(path ...string) string { return filepath.Join(append([]string{deploy}, path...)...) }
	software.Run(t, promtool, "check", "rules", in("prometheus", "alerts.yml"), in("prometheus", "recording.yml"))
	software.Run(t, promtool, "check", "config", in("prometheus", "prometheus.yml"))
	software.Run(t, promtool, "test", "rules", in("prometheus", "alerts_test.yml"))
	software.Run(t, amtool, "check-config", in("alertmanager", "alertmanager.yml"))
}

// TestRunbooks: each alert has a runbook with its expression, and each runbook an alert.
func TestRunbooks(t *testing.T) {
	files, err := os.ReadDir(filepath.Join(deploy, "runbooks"))
	must(t, err)
	left := make(map[string]bool)
	for _, f := range files {
		left[f.Name()] = true
	}
	list := rules(t, "alerts.yml")
	if len(list) < 15 {
		t.Errorf("%d alerts", len(list))
	}
	for _, r := range list {
		if r.Annotations["runbook"] != "runbooks/"+r.Alert+".md" || !left[r.Alert+".md"] {
			t.Errorf("%s has the runbook %q", r.Alert, r.Annotations["runbook"])
			continue
		}
		delete(left, r.Alert+".md")
		text := read(t, "runbooks", r.Alert+".md")
		when := "Fires when this holds for " + r.For + ":"
		if r.For == "" {
			when = "Fires at once:"
		}
		for _, part := range []string{"# " + r.Alert + "\n", when, "    " + r.Expr + "\n", "Severity " + r.Labels["severity"] + ".", "\n## Meaning\n", "\n## Where to look\n", "\n## Actions\n"} {
			if !strings.Contains(text, part) {
				t.Errorf("the runbook of %s has no %q", r.Alert, part)
			}
		}
	}
	for name := range left {
		t.Errorf("runbook %s has no alert", name)
	}
}
