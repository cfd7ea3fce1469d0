package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/penstock/penstock/internal/testutil/full"
	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/must"
	"github.com/penstock/penstock/internal/testutil/pipequota"
	"github.com/rogpeppe/go-internal/testscript"
)

// TestMain is the program itself if it is called by the program's name, as by the scripts. The
// penstock program is built once, and is in PATH.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == programName {
		main()
	}
	dir, err := os.MkdirTemp("", "penstock-bench-test-")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err == nil {
		var out []byte
		if out, err = exec.Command("go", "build", "-o", dir+"/", "github.com/penstock/penstock/proxy/cmd/penstock").CombinedOutput(); err != nil {
			err = fmt.Errorf("go build: %w: %s", err, out)
		}
	}
	if err == nil {
		err = os.Setenv("PATH", dir+string(filepath.ListSeparator)+os.Getenv("PATH"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	leak.Main(&testRun{m, dir})
}

// testRun is the tests and their own directory.
type testRun struct {
	tests *testing.M
	dir   string
}

func (r *testRun) Run() int {
	defer os.RemoveAll(r.dir)
	return r.tests.Run()
}

// TestScripts runs testdata/script.
func TestScripts(t *testing.T) {
	pipequota.Share(t)
	program := must.Get(os.Executable())(t)
	dir, scripts := "testdata/script", []string(nil)
	if !full.Everything() { // the others measure, each for as long as its shortest measurement takes
		dir = ""
		for _, name := range []string{"usage", "run", "rolling", "reload"} {
			scripts = append(scripts, filepath.Join("testdata/script", name+".txtar"))
		}
	}
	testscript.Run(t, testscript.Params{
		Dir:                 dir,
		Files:               scripts,
		RequireUniqueNames:  true,
		RequireExplicitExec: true,
		Condition: func(cond string) (bool, error) {
			if cond != "root" {
				return false, fmt.Errorf("no condition %q", cond)
			}
			return os.Geteuid() == 0, nil
		},
		Setup: func(e *testscript.Env) error {
			bin := filepath.Join(e.WorkDir, ".bin")
			if err := os.Mkdir(bin, 0o755); err != nil {
				return err
			}
			e.Setenv("PATH", bin+string(filepath.ListSeparator)+os.Getenv("PATH"))
			return os.Symlink(program, filepath.Join(bin, programName))
		},
	})
}
