package relay_test

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/testutil/full"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/internal/testutil/race"
)

// A toolchainTest is a file of the toolchain's own tests, and the tests in it that copy.
type toolchainTest struct {
	pkg, file string
	run       []string // tests that must be found, and must pass
}

var toolchainTests = []toolchainTest{
	{"io", "io_test.go", []string{
		"TestCopy", "TestCopyNegative", "TestCopyReadFrom", "TestCopyWriteTo", "TestCopyPriority", "TestCopyReadErrWriteErr",
		"TestCopyN", "TestCopyNReadFrom", "TestCopyNWriteTo", "TestCopyNEOF", "TestCopyLargeWriter",
	}},
	{"os", "copy_test.go", []string{"TestLargeCopyViaNetwork", "TestCopyFileToFile"}},
	{"net", "splice_linux_test.go", []string{"TestSplice"}},
	{"net", "sendfile_test.go", []string{
		"TestSendfile", "TestSendfileWithExactLimit", "TestSendfileWithLimitLargerThanFile", "TestSendfileWithLargeFile",
		"TestSendfileParts", "TestSendfileSeeked", "TestSendfilePipe", "TestSendfileOnWriteTimeoutExceeded",
	}},
}

// hooks are names in the toolchain's tests of the hooks that report which function of internal/poll
// has moved the bytes. Those of relay do not.
var hooks = map[string]bool{"hook": true, "called": true, "gotHandled": true, "gotFD": true}

// TestToolchain runs Go's own tests of io.Copy and io.CopyN, over sockets, files and plain readers, with
// Copy and CopyN of a relay in their place. The files are those of the toolchain that runs this test;
// nothing but the function called, and the conditions on hooks, is changed in them.
func TestToolchain(t *testing.T) {
	t.Parallel()

	if race.Enabled {
		t.Skip("the tests run in processes without the race detector: the run without it has them")
	}
	full.Only(t, "it compiles the tests of the standard library")
	root := must.Get(exec.Command("go", "env", "GOROOT").Output())(t)
	dir, overlay, packages := t.TempDir(), map[string]string{}, map[string][]string{}
	for _, c := range toolchainTests {
		at := filepath.Join(strings.TrimSpace(string(root)), "src", c.pkg)
		path := filepath.Join(at, c.file)
		text, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			t.Skipf("this toolchain comes without its tests: %v", err)
		}
		must.Do(t, err)
		put(t, overlay, filepath.Join(dir, c.pkg+"_"+c.file), path, replaced(t, path, text))
		for name, text := range copyFunctions(c.pkg) {
			put(t, overlay, filepath.Join(dir, c.pkg+"_"+name), filepath.Join(at, name), []byte(text))
		}
		for _, name := range c.run {
			if !bytes.Contains(text, []byte("func "+name+"(")) {
				t.Errorf("%s has no %s any more", path, name)
			}
		}
		packages[c.pkg] = append(packages[c.pkg], c.run...)
	}
	file := filepath.Join(dir, "overlay.json")
	text := must.Get(json.Marshal(map[string]any{"Replace": overlay}))(t)
	put(t, nil, file, "", text)
	for pkg, run := range packages {
		t.Run(pkg, func(t *testing.T) { runToolchain(t, file, pkg, run) })
	}
}

// runToolchain fails unless each of the tests runs, and passes or is skipped by its own choice.
func runToolchain(t *testing.T, overlay, pkg string, run []string) {
	out, err := exec.CommandContext(t.Context(), "go", "test", "-overlay", overlay, "-count=1", "-v",
		"-run", "^("+strings.Join(run, "|")+")$", pkg).CombinedOutput()
	if err != nil {
		t.Errorf("go test %s: %v\n%s", pkg, err, out)
	}
	for _, name := range run {
		if !bytes.Contains(out, []byte("--- PASS: "+name+" (")) && !bytes.Contains(out, []byte("--- SKIP: "+name+" (")) {
			t.Errorf("%s has not run:\n%s", name, out)
		}
	}
}

// put writes a file that is to take the place of another one.
func put(t *testing.T, overlay map[string]string, file, place string, text []byte) {
	t.Helper()
	must.Do(t, os.WriteFile(file, text, 0o644))
	if overlay != nil {
		overlay[place] = file
	}
}

// copyFunctions are files that give a package's tests relayCopy and relayCopyN. The tests of package net
// are in the package itself, which relay imports: they get the functions from its external tests.
func copyFunctions(pkg string) map[string]string {
	const types = `
	relayCopy  func(io.Writer, io.Reader) (int64, error)
	relayCopyN func(io.Writer, io.Reader, int64) (int64, error)
`
	const set = `
	r, err := relay.New(nil)
	if err != nil {
		panic(err)
	}
`
	if pkg != "net" {
		return map[string]string{"relay_test.go": "package " + pkg + "_test\n\nimport (\n\t\"io\"\n\n\t\"github.com/penstock/penstock/relay\"\n)\n\nvar (" + types + ")\n\n" +
			"func init() {" + set + "\trelayCopy, relayCopyN = r.Copy, r.CopyN\n}\n"}
	}
	return map[string]string{
		"relay_test.go": "package net\n\nimport \"io\"\n\nvar (" + types + ")\n\n" +
			"func SetCopy(c func(io.Writer, io.Reader) (int64, error), n func(io.Writer, io.Reader, int64) (int64, error)) {\n\trelayCopy, relayCopyN = c, n\n}\n",
		"relay_external_test.go": "package net_test\n\nimport (\n\t\"net\"\n\n\t\"github.com/penstock/penstock/relay\"\n)\n\n" +
			"func init() {" + set + "\tnet.SetCopy(r.Copy, r.CopyN)\n}\n",
	}
}

// replaced is a file with the calls of io.Copy and io.CopyN replaced, and no condition on hooks met.
func replaced(t *testing.T, path string, text []byte) []byte {
	t.Helper()
	files := token.NewFileSet()
	f := must.Get(parser.ParseFile(files, path, text, parser.ParseComments))(t)
	calls := 0
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if to := copyCalled(n); to != "" {
				n.Fun = ast.NewIdent(to)
				calls++
			}
		case *ast.IfStmt:
			if f.Name.Name == "net" && mentionsHook(n.Cond) {
				n.Cond = &ast.BinaryExpr{X: ast.NewIdent("false"), Op: token.LAND, Y: &ast.ParenExpr{X: n.Cond}}
			}
		}
		return true
	})
	if calls == 0 {
		t.Fatalf("%s calls neither io.Copy nor io.CopyN", path)
	}
	var out bytes.Buffer
	must.Do(t, format.Node(&out, files, f))
	return out.Bytes()
}

// copyCalled is the function to call in place of io.Copy or io.CopyN; "" for other calls.
func copyCalled(call *ast.CallExpr) string {
	name := ""
	switch f := call.Fun.(type) {
	case *ast.Ident: // of package io's own tests, which import it as "."
		name = f.Name
	case *ast.SelectorExpr:
		if x, ok := f.X.(*ast.Ident); ok && x.Name == "io" {
			name = f.Sel.Name
		}
	}
	switch name {
	case "Copy", "CopyN":
		return "relay" + name
	}
	return ""
}

func mentionsHook(cond ast.Expr) (any bool) {
	ast.Inspect(cond, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		any = any || ok && hooks[id.Name]
		return true
	})
	return any
}
