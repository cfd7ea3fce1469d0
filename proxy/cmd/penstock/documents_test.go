package main

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/google/go-cmp/cmp"
	"github.com/penstock/penstock/proxy/internal/manual"
)

// shownCommand matches a line of a document's example, in a fence or indented by four spaces, that calls the program. Outputs, whose
// columns are more than a space apart, are none.
var shownCommand = regexp.MustCompile(`(?m)^(?:    )?(?:\$ )?(?:sudo )?penstock ([a-z-]\S*(?: \S+)*?)(?: +#.*)?$`)

// TestCommandsOfDocuments: the commands in the documents' examples are ones that the program has, with their arguments and flags.
func TestCommandsOfDocuments(t *testing.T) {
	t.Parallel()

	pages, err := filepath.Glob("../../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]int)
	for _, page := range append(pages, "../../../README.md", "../../../README.zh-CN.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range shownCommand.FindAllStringSubmatch(string(text), -1) {
			found[filepath.Base(page)]++
			k, err := kong.New(new(commands))
			if err == nil {
				_, err = k.Parse(words(m[1]))
			}
			if err != nil {
				t.Errorf("%s: penstock %s: %v", page, m[1], err)
			}
		}
	}
	if found["mirror.md"] < 2 || found["filters.md"] < 1 {
		t.Errorf("the documents show %v commands", found)
	}
}

// words splits a command as a shell does, up to the next command.
func words(line string) (list []string) {
	line = regexp.MustCompile(` +(?:\||&&|>|;|2>).*$`).ReplaceAllString(line, "")
	for _, m := range regexp.MustCompile(`(?:'[^']*'|"[^"]*"|[^\s'"])+`).FindAllString(line, -1) {
		list = append(list, strings.NewReplacer("'", "", `"`, "").Replace(m))
	}
	return list
}

// manualDir has the man pages.
const manualDir = "../../../packaging/man"

// manualSections are the parts of penstock(1) that the command line does not have.
var manualSections = []manual.Section{
	{Title: "exit status", Text: `0 on success; 1 if the command failed, or if sessions were cut; 2 if the command line is wrong. With --exit-code, status exits with 3 if there are warnings, and with 4 if clients are not served.`},
	{Title: "environment", Text: `NO_COLOR with any value has no colours used. GOMAXPROCS, GOGC and GOMEMLIMIT are those of every program in Go.`},
	{Title: "files", Text: "/etc/penstock/penstock.yaml, or else ./penstock.yaml, is the configuration of commands that are given none."},
}

// manPages are the man pages that the command line gives now.
func manPages(t *testing.T) map[string]string {
	t.Helper()
	app, err := commandLine().Model()
	if err != nil {
		t.Fatal(err)
	}
	return manual.Pages(app, manualSections...)
}

// TestManPages: packaging/man has the pages of the command line as it is now, and no others.
func TestManPages(t *testing.T) {
	t.Parallel()

	pages := manPages(t)
	if *updatePage {
		if err := os.RemoveAll(manualDir); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(manualDir, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range pages {
			if err := os.WriteFile(filepath.Join(manualDir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	const remedy = "go test ./proxy/cmd/penstock -run TestManPages -update"
	files, err := os.ReadDir(manualDir)
	if err != nil {
		t.Fatalf("%v: %s", err, remedy)
	}
	for _, f := range files {
		have, err := os.ReadFile(filepath.Join(manualDir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(have), pages[f.Name()]); diff != "" {
			t.Errorf("%s is not that of the command line (%s):\n%s", f.Name(), remedy, diff)
		}
		delete(pages, f.Name())
	}
	for name := range pages {
		t.Errorf("%s is missing: %s", name, remedy)
	}
}

// TestManPagesAreValid has groff's man and mandoc read the pages.
func TestManPagesAreValid(t *testing.T) {
	t.Parallel()

	pages := manPages(t)
	dir := t.TempDir()
	for name, text := range pages {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, reader := range [][]string{{"mandoc", "-T", "lint"}, {"man", "--warnings=all", "-l", "-Tutf8"}} {
		if _, err := exec.LookPath(reader[0]); err != nil {
			if os.Getenv("CI") != "" {
				t.Error(err)
			}
			t.Logf("%s is not installed", reader[0])
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(pages)) {
			cmd := exec.Command(reader[0], append(reader[1:len(reader):len(reader)], filepath.Join(dir, name))...)
			cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C.UTF-8", "MANWIDTH=80"}
			stdout, stderr := new(strings.Builder), new(strings.Builder)
			cmd.Stdout, cmd.Stderr = stdout, stderr
			_ = cmd.Run() // its exit code is that of its complaints
			complaints := stderr.String()
			if reader[0] == "mandoc" {
				complaints = stdout.String()
			} else if stdout.Len() < 200 {
				t.Errorf("%s shows %s as %q", reader[0], name, stdout)
			}
			for line := range strings.Lines(complaints) {
				if !strings.Contains(line, "missing date") { // so they are the same every day
					t.Errorf("%s: %s", reader[0], line)
				}
			}
		}
	}
}

// TestManPagesHaveEverything: every command and flag that is not hidden is in a page.
func TestManPagesHaveEverything(t *testing.T) {
	t.Parallel()

	app, err := commandLine().Model()
	if err != nil {
		t.Fatal(err)
	}
	pages := manPages(t)
	for _, leaf := range app.Leaves(true) {
		top := leaf
		for top.Parent != app.Node {
			top = top.Parent
		}
		page := strings.ReplaceAll(pages["penstock-"+top.Name+".1"], `\-`, "-")
		for _, f := range leaf.Flags {
			if !f.Hidden && f.Name != "help" && !strings.Contains(page, "-"+f.Name) && !strings.Contains(page, "[no-]"+f.Name) {
				t.Errorf("--%s of %s is not in its page", f.Name, leaf.FullPath())
			}
		}
		if !strings.Contains(page, leaf.Name) {
			t.Errorf("%s is in no page", leaf.FullPath())
		}
	}
}
