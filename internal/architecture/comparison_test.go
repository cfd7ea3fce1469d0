package architecture

import (
	"go/ast"
	"path"
	"regexp"
	"strings"
	"testing"
)

// A comparison is a row of docs/comparison.md: what is compared, Penstock's answer, and the tests that show it.
type comparison struct{ what, penstock, tests string }

// comparisons returns the rows of docs/comparison.md, whose tables all have the same
// columns.
func comparisons(t *testing.T) (rows []comparison) {
	t.Helper()
	const head = "| | Penstock | HAProxy | nginx stream | Envoy | Traefik TCP | caddy-l4 | shown by |"
	for line := range strings.Lines(read(t, "docs/comparison.md")) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") || line == head || strings.HasPrefix(line, "|---") {
			continue
		}
		cells := strings.Split(strings.ReplaceAll(strings.Trim(line, "|"), `\|`, "/"), "|")
		if len(cells) != 8 {
			t.Errorf("docs/comparison.md: %d columns, want 8: %s", len(cells), line)
			continue
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows = append(rows, comparison{cells[0], cells[1], cells[7]})
	}
	if len(rows) < 75 {
		t.Errorf("docs/comparison.md has %d rows: its tables are not what this test looks for", len(rows))
	}
	return rows
}

// TestComparison: where docs/comparison.md says that Penstock does something, fully or partly, it names tests, and they are
// there; where it says no it names none.
func TestComparison(t *testing.T) {
	have := tests(t)
	for _, row := range comparisons(t) {
		answer, _, _ := strings.Cut(row.penstock, ":")
		answer, _, _ = strings.Cut(answer, " ")
		named := named(row.tests)
		switch {
		case answer != "yes" && answer != "partly" && answer != "no":
			t.Errorf("%s: Penstock's answer is %q, want yes, partly or no", row.what, row.penstock)
		case answer == "no" && row.tests != "":
			t.Errorf("%s: there is nothing to be shown, but %s", row.what, row.tests)
		case answer != "no" && len(named) == 0:
			t.Errorf("%s: no test shows it", row.what)
		}
		for _, n := range named {
			if !have[n] {
				t.Errorf("%s: there is no test %s", row.what, n)
			}
		}
	}
}

// named returns the tests of a cell like "`TestA`, `TestB`, `relay.TestC`", as proxy/server.TestA and so on. A test without
// a directory is in the directory of the test before it.
func named(cell string) (tests []string) {
	dir := "proxy/server"
	for _, m := range regexp.MustCompile("`([^`]*)`").FindAllStringSubmatch(cell, -1) {
		before, test, found := strings.Cut(m[1], ".")
		if !found {
			test = before
		} else {
			dir = before
		}
		tests = append(tests, dir+"."+test)
	}
	return tests
}

// tests returns every test of the module, as package.TestName.
func tests(t *testing.T) map[string]bool {
	t.Helper()
	_, all := sources(t)
	have := make(map[string]bool)
	for _, s := range all {
		if !s.isTest() {
			continue
		}
		for _, d := range s.ast.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") && f.Name.Name != "TestMain" {
				have[path.Dir(s.path)+"."+f.Name.Name] = true
			}
		}
	}
	return have
}
