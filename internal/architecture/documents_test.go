package architecture

import (
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/testutil/must"
)

// TestDependenciesAreExplained: DEPS.md has a line for every direct dependency,
// and none for another.
func TestDependenciesAreExplained(t *testing.T) {
	explained := make(map[string]bool)
	for _, m := range regexp.MustCompile("(?m)^- `([^`]+)`: .+").FindAllStringSubmatch(read(t, "DEPS.md"), -1) {
		explained[m[1]] = true
	}
	needed := slices.Concat(direct(t, "go.mod"), direct(t, "proxy/go.mod"), direct(t, "bench/go.mod"), direct(t, "examples/metrics/go.mod"), direct(t, "ports/go.mod"), tools(t))
	slices.Sort(needed)
	for _, path := range slices.Compact(needed) {
		if !explained[path] && !strings.HasPrefix(path, module) {
			t.Errorf("DEPS.md does not say why %s is needed", path)
		}
		delete(explained, path)
	}
	for path := range explained {
		t.Errorf("DEPS.md explains %s, which no go.mod requires", path)
	}
}

func direct(t *testing.T, mod string) (paths []string) {
	for _, r := range goMod(t, mod).Require {
		if !r.Indirect {
			paths = append(paths, r.Path)
		}
	}
	return paths
}

func tools(t *testing.T) (paths []string) {
	mod := goMod(t, "tools/go.mod")
	for _, r := range mod.Require {
		if !r.Indirect {
			paths = append(paths, r.Path)
		}
	}
	for _, tool := range mod.Tool {
		for _, r := range mod.Require {
			if tool.Path == r.Path || strings.HasPrefix(tool.Path, r.Path+"/") {
				paths = append(paths, r.Path)
			}
		}
	}
	return paths
}

type modFile struct {
	Require []struct {
		Path     string
		Indirect bool
	}
	Tool []struct{ Path string }
}

func goMod(t *testing.T, name string) (mod modFile) {
	t.Helper()
	cmd := exec.Command("go", "mod", "edit", "-json", name)
	cmd.Dir = root
	out := must.Get(cmd.Output())(t)
	must.Do(t, json.Unmarshal(out, &mod))
	return mod
}

var readmes = []string{"README.md", "README.zh-CN.md"}

// TestReadmeExample: the Go code of the README is part of a program that is built and
// tested.
func TestReadmeExample(t *testing.T) {
	program := read(t, "examples/forward/main.go")
	for _, name := range readmes {
		code := blocks(read(t, name), "go")
		if len(code) != 1 {
			t.Fatalf("%s has %d blocks of Go, want one", name, len(code))
		}
		if !strings.Contains(program, "\n"+code[0]) {
			t.Errorf("the Go code of %s is not in examples/forward/main.go:\n%s", name, code[0])
		}
		if n := strings.Count(code[0], "\n"); n > 15 {
			t.Errorf("the Go code of %s has %d lines, want at most fifteen", name, n)
		}
	}
	if code := blocks(read(t, "docs/adopting.md"), "go"); !strings.Contains(read(t, "relay/example_forwarder_test.go"), "\n"+code[0]) {
		t.Errorf("the first Go code of docs/adopting.md is not in relay/example_forwarder_test.go:\n%s", code[0])
	}
}

// blocks returns the fenced blocks of a language in a Markdown text.
func blocks(text, language string) (found []string) {
	for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(text, -1) {
		found = append(found, m[1])
	}
	return found
}

// TestLinks: every file that a document links to is there.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:]+)(#[^)]*)?\)`)
	for _, name := range documents(t) {
		for _, m := range link.FindAllStringSubmatch(read(t, name), -1) {
			target := filepath.Join(root, filepath.Dir(name), m[1])
			if found, _ := filepath.Glob(target); len(found) == 0 {
				t.Errorf("%s links to %s, which is not there", name, m[1])
			}
		}
	}
}

// TestPagesAreListed: the index and the site's navigation have every page of docs, in the same order.
func TestPagesAreListed(t *testing.T) {
	index, _, _ := strings.Cut(read(t, "docs/README.md"), "## Versions and systems")
	_, tables, _ := strings.Cut(index, "\n## ")
	_, nav, _ := strings.Cut(read(t, "mkdocs.yml"), "\n  - README.md\n")
	var listed, pages []string
	for _, m := range regexp.MustCompile(`\]\(([\w-]+\.md)\)`).FindAllStringSubmatch(tables, -1) {
		listed = append(listed, m[1])
	}
	for _, m := range regexp.MustCompile(`: ([\w-]+\.md)\n`).FindAllStringSubmatch(nav, -1) {
		pages = append(pages, m[1])
	}
	if !slices.Equal(listed, pages) {
		t.Errorf("docs/README.md lists %v, mkdocs.yml %v", listed, pages)
	}
	found := must.Get(filepath.Glob(filepath.Join(root, "docs/*.md")))(t)
	for _, path := range found {
		if name := filepath.Base(path); name != "README.md" && !slices.Contains(listed, name) {
			t.Errorf("docs/README.md does not list %s", name)
		}
	}
}

// TestWhereItHappens: the files and names of that table of ARCHITECTURE.md are there.
func TestWhereItHappens(t *testing.T) {
	_, table, _ := strings.Cut(read(t, "docs/ARCHITECTURE.md"), "## Where it happens")
	table, _, _ = strings.Cut(table, "\n## ")
	rows := strings.Split(table, "\n|")[3:]
	if len(rows) < 8 {
		t.Fatalf("the table has %d rows", len(rows))
	}
	for _, row := range rows {
		var code strings.Builder
		for _, m := range regexp.MustCompile("`([a-z/_]+/[a-z_]+\\.go)`").FindAllStringSubmatch(row, -1) {
			code.WriteString(read(t, m[1])) // which fails if it is not there
		}
		for _, m := range regexp.MustCompile("`(?:[A-Za-z]+\\.)([A-Za-z]+)`").FindAllStringSubmatch(row, -1) {
			if m[1] != "go" && code.Len() > 0 && !strings.Contains(code.String(), ") "+m[1]+"(") {
				t.Errorf("no file of this row has a method %s: %s", m[1], row)
			}
		}
	}
}

func documents(t *testing.T) (names []string) {
	t.Helper()
	must.Do(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && strings.HasPrefix(d.Name(), ".") {
			return filepath.SkipDir
		}
		if filepath.Ext(path) == ".md" {
			rel, err := filepath.Rel(root, path)
			names = append(names, rel)
			return err
		}
		return nil
	}))
	return names
}

// absolute matches an absolute path of two elements or more that is quoted or
// stands for itself, and captures its first element.
var absolute = regexp.MustCompile("(?:^|[\"' =(`\t])/([a-z]+)/[a-zA-Z]")

// everywhere are the directories that every Linux machine has. A path below
// another one that is on this machine names this machine.
var everywhere = []string{"bin", "dev", "etc", "proc", "run", "sbin", "sys", "usr", "var"}

func namesThisMachine(first string) bool {
	_, err := os.Stat("/" + first)
	return err == nil && !slices.Contains(everywhere, first)
}

// TestNoMachinePaths: nothing in the project depends on, or tells of, the
// machine it was written on.
func TestNoMachinePaths(t *testing.T) {
	must.Do(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == ".git":
			return filepath.SkipDir
		case d.IsDir() || !d.Type().IsRegular() || d.Name() == ".git": // that of a linked worktree is a file
			return nil
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		n := 0
		for line := range strings.Lines(read(t, rel)) {
			n++
			for _, m := range absolute.FindAllStringSubmatch(line, -1) {
				if namesThisMachine(m[1]) {
					t.Errorf("%s:%d: the path of this machine: %s", rel, n, strings.TrimSpace(line))
				}
			}
		}
		return nil
	}))
}
