//go:build linux

package ports

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A port is a public project with the library inside.
type port struct {
	module string
	folder string   // of the module, copied alone into a module of its own; "": the whole module
	tests  string   // the packages whose tests are run
	skip   []string // tests that fail without the patch as well, when the machine is busy
	edits  []string // of its go.mod
	heap   string   // the package in which testdata/NAME_heap_test.go.txt measures idle sessions; "": none
}

var ports = map[string]port{
	"tcpproxy": {module: "github.com/inetaf/tcpproxy", tests: "./...", heap: "."},
	"cmux":     {module: "github.com/soheilhy/cmux", tests: "./...", skip: []string{"TestTimeout"}, heap: "."}, // it expects two goroutines in an order
	"etcd":     {module: "go.etcd.io/etcd/server/v3", folder: "proxy/tcpproxy", tests: ".", edits: []string{"-require=go.uber.org/zap@v1.27.0"}, heap: "."},
	"golib":    {module: "github.com/fatedier/golib", tests: "./io", heap: "./io"},
	"redcon":   {module: "github.com/tidwall/redcon", tests: "./..."},
	"yamux": {module: "github.com/hashicorp/yamux", tests: ".", heap: ".", skip: []string{
		"TestSendData_VeryLarge",       // 16 GiB by TLS, with 250 ms for each ping
		"TestHalfCloseSessionShutdown", // in 800 runs it failed 351 times without the patch, 350 with it
	}},
}

// TestPorts: with the library in place of their own copies, the tests of six public projects pass, and an
// idle session costs no more memory than before and holds no descriptor but its sockets.
func TestPorts(t *testing.T) {
	for name, p := range ports {
		t.Run(name, func(t *testing.T) {
			before, after := p.copy(t, name, false), p.copy(t, name, true)
			p.suite(t, after)
			if p.heap == "" {
				return
			}
			was, is := p.idle(t, before), p.idle(t, after)
			t.Logf("an idle session, with its client and its server: before %+v, after %+v", was, is)
			if is.bytes > was.bytes+was.bytes/12 || is.descriptors > 4 {
				t.Errorf("an idle session has %+v, and had %+v", is, was)
			}
		})
	}
}

// copy copies a project out of the module cache, with the patch or without.
func (p *port) copy(t *testing.T, name string, patched bool) (dir string) {
	t.Helper()
	from := strings.TrimSpace(run(t, ".", "go", "list", "-m", "-f", "{{.Dir}}", p.module))
	if from == "" {
		run(t, ".", "go", "mod", "download", p.module)
		from = strings.TrimSpace(run(t, ".", "go", "list", "-m", "-f", "{{.Dir}}", p.module))
	}
	dir = t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(from, p.folder))); err != nil {
		t.Fatal(err)
	}
	if err := filepath.WalkDir(dir, func(name string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Chmod(name, 0o755)
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
		run(t, dir, "go", "mod", "init", path.Join(p.module, p.folder))
	}
	if p.heap != "" {
		test, err := os.ReadFile(filepath.Join("testdata", name+"_heap_test.go.txt"))
		if err != nil {
			t.Fatal(err)
		}
		idle, err := os.ReadFile("testdata/idle_test.go.txt")
		if err != nil {
			t.Fatal(err)
		}
		clause, _, _ := bytes.Cut(test, []byte("\n"))
		write(t, filepath.Join(dir, p.heap, "penstock_heap_test.go"), test)
		write(t, filepath.Join(dir, p.heap, "penstock_idle_test.go"), slices.Concat(clause, []byte("\n\n"), idle))
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	edits := append([]string{"mod", "edit", "-go=1.26.0"}, p.edits...)
	if patched {
		run(t, dir, "git", "apply", "-p0", filepath.Join(here, "testdata", name+".diff"))
		edits = append(edits, "-require=github.com/penstock/penstock@v0.1.0", "-replace=github.com/penstock/penstock="+filepath.Dir(here))
	}
	run(t, dir, "go", edits...)
	sums, err := os.ReadFile("go.sum")
	if err != nil {
		t.Fatal(err)
	}
	had, _ := os.ReadFile(filepath.Join(dir, "go.sum"))
	write(t, filepath.Join(dir, "go.sum"), append(had, sums...))
	return dir
}

// suite runs the project's tests.
func (p *port) suite(t *testing.T, dir string) {
	t.Helper()
	list := strings.Fields(run(t, dir, "go", "list", "-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}}{{end}}", p.tests))
	if len(list) == 0 {
		t.Error("there are no tests")
	}
	skip := strings.Join(append(p.skip, "TestPenstockHeap"), "|")
	for i, pkg := range list {
		binary := filepath.Join(dir, fmt.Sprintf("suite%d.test", i))
		run(t, pkg, "go", "test", "-c", "-o", binary, ".")
		out, err := alone(t, binary, pkg, "-test.timeout=5m", "-test.v", "-test.skip=^("+skip+")$").CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", pkg, err, failures(out))
		}
		t.Logf("%s: %d tests passed", strings.TrimPrefix(pkg, dir), bytes.Count(out, []byte("--- PASS: ")))
	}
}

// failures are the lines of an output about failed tests, and its last ones.
func failures(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	var b strings.Builder
	for i, l := range lines {
		if strings.Contains(l, "--- FAIL") || i >= len(lines)-40 {
			b.WriteString(l + "\n")
		}
	}
	return b.String()
}

// A cost is what an idle session has, heap and stacks in bytes and descriptors, and the CPU time of a gigabyte.
type cost struct {
	bytes, descriptors int
	perGB              string
}

var perSession = regexp.MustCompile(`bytes per idle session: (\d+), descriptors: (\d+)(?:\nCPU time per GB: (\S+))?`)

// idle returns the cost of an idle session, and of a gigabyte if other processes can be its ends.
func (p *port) idle(t *testing.T, dir string) (c cost) {
	t.Helper()
	binary := filepath.Join(dir, "heap.test")
	pkg := filepath.Join(dir, p.heap)
	run(t, pkg, "go", "test", "-c", "-o", binary, ".")
	out, err := alone(t, binary, pkg, "-test.run=^TestPenstockHeap$", "-test.timeout=2m", "-test.v").CombinedOutput()
	m := perSession.FindSubmatch(out)
	if err != nil || m == nil {
		t.Fatalf("%v\n%s", err, out)
	}
	c.bytes, _ = strconv.Atoi(string(m[1]))
	c.descriptors, _ = strconv.Atoi(string(m[2]))
	c.perGB = string(m[3])
	return c
}

// run runs a command in a directory, outside of the workspace, and returns its output.
func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod", "PWD="+dir, "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir))
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out, errs.Bytes())
	}
	return string(out)
}

func write(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
}
