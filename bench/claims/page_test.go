package claims

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// A row is a row of the table in docs/claims.md.
type row struct{ published, result, command string }

// rows returns the rows of the page, by the names of their sections.
func rows(t *testing.T) map[string]row {
	t.Helper()
	all := make(map[string]row)
	for line := range strings.Lines(read(t, "docs/claims.md")) {
		cells := strings.Split(strings.ReplaceAll(line, `\|`, "¦"), " | ")
		_, id, found := strings.Cut(cells[0], "](#")
		if !found || len(cells) != 4 {
			continue
		}
		all[strings.TrimSuffix(id, ")")] = row{cells[1], cells[2], strings.ReplaceAll(strings.TrimSuffix(strings.TrimSpace(cells[3]), " |"), "¦", "|")}
	}
	return all
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(path)))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestEveryFigureHasItsBenchmark: each published figure has a row, and each row a command that repeats it, or a refusal. Rows that are
// measured here name their benchmark, and each benchmark has a page that names it.
func TestEveryFigureHasItsBenchmark(t *testing.T) {
	all, pages := rows(t), read(t, "docs/claims.md")+read(t, "docs/performance.md")
	for id, figures := range map[string][]string{
		"pipe-pool":                {"1.36 µs → 0.02 µs", "24 B → 0"},
		"pipe-pool-parallel":       {"747 ns → 4 ns", "24 B → 0"},
		"object-pool":              {"3.02 ms → 1.36 ms", "10,000"},
		"stop-timer":               {"271.9 ns → 107.9 ns"},
		"pool-across-collections":  {"993 ms → 1.03 s"},
		"pool-private":             {"3.00 ns → 2.21 ns"},
		"pool-overflow":            {"600 ns → 587 ns"},
		"pool-pause":               {"71 µs → 5.6 µs", "p95 73.1 µs → 6.7 µs"},
		"pool-expensive-new":       {"+17.7 %", "33.9 → 40.0"},
		"one-connection":           {"1.3 → 8.2 Gbit/s", "125 k → 8.3 k", "42 % → 19 %"},
		"gathered-writes":          {"the same figures"}, // as one-connection
		"gathered-references":      {"the same figures"}, // as one-connection
		"ten-thousand-connections": {"24,800 → 1,920", "12.7 ms → 3.1 ms", "41,500", "10,000"},
		"slice-headers":            {"127 / 9 / 3", "2.1 / 1.8 / 0.4 GiB", "38 / 62 / 11 %"},
		"million-connections":      {"64 MB", "9.3 µs", "1.2 GB", "42 µs", "18 ms each 5 s"},
		"one-call":                 {"one call instead of three"},
		"iovec-limit":              {"EINVAL"},
		"splice-move":              {"move pages"},
		"event-ring":               {"part of the recipe"},
		"busy-polling":             {"part of the recipe"},
		"nagle":                    {"TCP_NODELAY"},
		"configuration":            {"95.7 %", "42 s"},
		"incident-silent":          {"842 → 127 ms", "3.2 → 0.18 %"},
		"incident-slow":            {"the same figures"}, // as incident-silent
		"traces":                   {"61 %", "99.3 %"},
		"alerts":                   {"1,843 → 217"},
		"fault-location":           {"92 %", "−68 %"},
		"memory-beside-envoy":      {"−73 %"},
		"encryption-latency":       {"89 µs"},
		"socket-wait":              {"37 %"},
		"device-queue":             {"83 µs"},
		"allocation-failures":      {"0.012 %"},
		"cached-answers":           {"fallback"},
	} {
		r, found := all[id]
		if !found {
			t.Errorf("docs/claims.md has no row %s", id)
			continue
		}
		delete(all, id)
		for _, f := range figures {
			if !strings.Contains(r.published, f) {
				t.Errorf("%s: %q does not have %q", id, r.published, f)
			}
		}
		here := slices.ContainsFunc(measurements, func(m measurement) bool { return m.id == id })
		switch named := strings.Contains(r.command, "'Claim/"+id+"$'"); {
		case here != named:
			t.Errorf("%s: measured here is %v, and the command is %s", id, here, r.command)
		case !here && !strings.HasPrefix(r.result, "refused: ") && !strings.Contains(r.command, "go test ") && !strings.Contains(r.command, "`penstock-bench "):
			t.Errorf("%s has no command that repeats it, and no refusal: %q", id, r.command)
		}
		if !strings.Contains(pages, "\n## "+id+"\n") {
			t.Errorf("docs/claims.md has no section %s", id)
		}
	}
	for id := range all {
		t.Errorf("the row %s has no figure here", id)
	}
	for _, m := range measurements {
		if !strings.Contains(pages, "'Claim/"+m.id+"$'") {
			t.Errorf("no page names the benchmark of %s", m.id)
		}
	}
}

// TestBenchmarksExist: the benchmarks and tests of commands in pages exist.
func TestBenchmarksExist(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil || len(pages) == 0 {
		t.Fatal(len(pages), err)
	}
	command := regexp.MustCompile("go test [^`\n]*")
	argument := regexp.MustCompile(`-(bench|run)[ =]('[^']*'|[^' ]+)`)
	group := regexp.MustCompile(`\([^)]*\)`)
	directory := regexp.MustCompile(` (\./[\w/]+)`)
	for _, page := range pages {
		for _, c := range command.FindAllString(read(t, "docs/"+filepath.Base(page)), -1) {
			dir := directory.FindStringSubmatch(c)
			if dir == nil {
				continue
			}
			for _, a := range argument.FindAllStringSubmatch(c, -1) {
				kind := map[string]string{"bench": "Benchmark", "run": "Test"}[a[1]]
				for name := range strings.SplitSeq(group.ReplaceAllString(strings.Trim(strings.ReplaceAll(a[2], `\|`, "|"), "'"), ""), "|") {
					name, _, _ = strings.Cut(name, "/")
					name = strings.TrimPrefix(strings.Trim(name, "^$()"), kind)
					if !slices.Contains([]string{"", "-", "."}, name) && !declared(t, dir[1], kind, name) {
						t.Errorf("%s: %s: no %s of %s matches %q", filepath.Base(page), c, kind, dir[1], name)
					}
				}
			}
		}
	}
}

// declared reports whether a directory has a test or a benchmark whose name has a part.
func declared(t *testing.T, dir, kind, part string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	declaration := regexp.MustCompile(`func ` + kind + `\w*` + part + `\w*\(`)
	return slices.ContainsFunc(files, func(path string) bool {
		text, err := os.ReadFile(path)
		return err == nil && declaration.Match(text)
	})
}
