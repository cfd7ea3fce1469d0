package main

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/full"
	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/pipequota"
	"github.com/penstock/penstock/internal/testutil/software"
	"github.com/penstock/penstock/proxy/cli"
	"github.com/rogpeppe/go-internal/testscript"
)

// tiny is a bench that takes a moment.
var tiny = []string{"--peers", "penstock,direct", "--rounds", "1", "--seconds", "0.05", "--no-syscalls"}

func TestBench(t *testing.T) {
	software.Long(t, "whole runs of the program, as root and as an ordinary user")
	path := buildProgram(t)
	for _, test := range []struct {
		name string
		run  func(t *testing.T, path string)
	}{
		{"reports", benchReports},
		{"is interrupted", benchIsInterrupted},
		{"is killed", benchIsKilled},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, path) })
	}
}

// document parses the output of --json.
func document(t *testing.T, text []byte) *report.Document {
	t.Helper()
	d := new(report.Document)
	if err := json.Unmarshal(text, d); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return d
}

// benchReports runs also as an ordinary user, without a network namespace.
func benchReports(t *testing.T, path string) {
	for name, root := range map[string]bool{"as whoever this is": os.Getuid() == 0, "as an ordinary user": false} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			files := []string{filepath.Join(dir, "a.json"), filepath.Join(dir, "b.svg")}
			// Existing content is replaced completely.
			for _, f := range files {
				if err := os.WriteFile(f, make([]byte, 1<<20), 0o666); err != nil {
					t.Fatal(err)
				}
			}
			d := &childRun{t: t, cmd: exec.Command(path, append(tiny, "--scenarios", "bulk-1,echo-64-1", "--json", files[0], "--svg", files[1])...)}
			if !root && os.Getuid() == 0 {
				lend(t, path, dir, files)
				d.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
			}
			d.start()
			stdout, stderr, code := d.end()
			if code != cli.ExitOK {
				t.Fatalf("exit code %d: %s", code, stderr)
			}
			checkBench(t, stdout, stderr, root)
			checkFiles(t, files, root)
		})
	}
}

// lend lets all users run the program and write the files.
func lend(t *testing.T, path, dir string, files []string) {
	t.Helper()
	for _, f := range files {
		if err := os.Chmod(f, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []string{dir, filepath.Dir(dir), filepath.Dir(path), filepath.Dir(filepath.Dir(path))} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

func checkBench(t *testing.T, stdout, stderr string, root bool) {
	t.Helper()
	where := "without a network namespace"
	if root {
		where = "in a separate network namespace"
	}
	for _, want := range []string{where, "bulk-1: 1 connection", "echo-64-1: 64 bytes", "\n| penstock (baseline) ", "\n| direct  ", "\n| again (noise floor) "} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in\n%s", want, stdout)
		}
	}
	if !strings.HasPrefix(stderr, begins) || !strings.Contains(stderr, "\necho-64-1     round 1 of 1\n") {
		t.Errorf("progress: %q", stderr)
	}
}

func checkFiles(t *testing.T, files []string, root bool) {
	t.Helper()
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	doc := document(t, text)
	if len(doc.Scenarios) != 2 || doc.NetworkNamespace != root || doc.Method.SystemCallCounter != "" {
		t.Errorf("document: %s", text)
	}
	for _, s := range doc.Scenarios {
		for _, c := range s.Cells {
			if c.Failed != "" || len(c.Figures) == 0 {
				t.Errorf("%s, %s: %+v", s.Name, c.Contestant, c)
			}
		}
	}
	picture, err := os.Open(files[1])
	if err != nil {
		t.Fatal(err)
	}
	defer picture.Close()
	for d := xml.NewDecoder(picture); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("picture: %v", err)
		}
	}
}

// long is a bench that measures one scenario quickly, then another for a long time.
func long(t *testing.T, path string) *childRun {
	t.Setenv("TMPDIR", t.TempDir()) // SIGKILL leaves files there
	d := startProgram(t, path, "--peers", "penstock", "--rounds", "1", "--seconds", "0.05", "--no-syscalls", "--scenarios", "bulk-1,idle", "--idle-sessions", "10")
	d.until(d.stderr, `^idle .*, penstock`)
	return d
}

func benchIsInterrupted(t *testing.T, path string) {
	d := long(t, path)
	d.signal(os.Interrupt)
	stdout, stderr, code := d.end()
	if code != cli.ExitError || !strings.HasSuffix(stderr, "penstock-bench: interrupted\n") {
		t.Errorf("exit code %d, %q", code, stderr)
	}
	if !strings.Contains(stdout, "Interrupted: these results were measured until then.") || !strings.Contains(stdout, "\n| penstock (baseline) ") {
		t.Errorf("report:\n%s", stdout)
	}
}

func benchIsKilled(t *testing.T, path string) {
	d := long(t, path)
	if n := len(d.processes()); n != 4 {
		t.Errorf("%d processes: %v", n, d.processes())
	}
	d.signal(syscall.SIGKILL)
	for deadline := time.Now().Add(condition.Patience); len(d.processes()) > 0 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond) // its children end by themselves, soon
	}
	d.end()
}

// buildProgram builds the program as users do, with the penstock program beside it.
func buildProgram(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	out, err := exec.Command("go", "build", "-o", dir+"/", ".", "github.com/penstock/penstock/proxy/cmd/penstock").CombinedOutput()
	if err != nil {
		t.Fatalf("go build: %v: %s", err, out)
	}
	return filepath.Join(dir, programName)
}

// childRun is a running program.
type childRun struct {
	t      *testing.T
	cmd    *exec.Cmd
	mark   string // in the environment of the program and all of its children
	stdout *bufio.Reader
	stderr *bufio.Reader
}

// startProgram runs the program at path.
func startProgram(t *testing.T, path string, args ...string) *childRun {
	t.Helper()
	d := &childRun{t: t, cmd: exec.Command(path, args...)}
	d.start()
	return d
}

// start runs d.cmd.
func (d *childRun) start() {
	d.t.Helper()
	d.mark = "PENSTOCK_BENCH_TEST=" + rand.Text()
	d.cmd.Env = append(os.Environ(), d.mark)
	stdout, err := d.cmd.StdoutPipe()
	if err != nil {
		d.t.Fatal(err)
	}
	stderr, err := d.cmd.StderrPipe()
	if err != nil {
		d.t.Fatal(err)
	}
	d.stdout, d.stderr = bufio.NewReader(stdout), bufio.NewReader(stderr)
	if err := d.cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = d.cmd.Process.Kill() })
}

// end waits for the end, and returns the output since the last call and the exit code. No process
// that it started may be left.
func (d *childRun) end() (stdout, stderr string, code int) {
	d.t.Helper()
	var reading sync.WaitGroup
	var complaints []byte
	reading.Go(func() { complaints, _ = io.ReadAll(d.stderr) })
	out, _ := io.ReadAll(d.stdout)
	reading.Wait()
	_ = d.cmd.Wait()
	if left := d.processes(); len(left) > 0 {
		d.t.Errorf("processes left: %v", left)
	}
	return string(out), string(complaints), d.cmd.ProcessState.ExitCode()
}

// processes lists the command lines of the program and its children by process id, if they are
// alive.
func (d *childRun) processes() map[int]string {
	found := make(map[int]string)
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		d.t.Fatal(err)
	}
	for _, dir := range dirs {
		environ, err := os.ReadFile(filepath.Join(dir, "environ"))
		if err != nil || !bytes.Contains(environ, []byte(d.mark)) {
			continue // gone, a zombie or another user's
		}
		line, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			d.t.Fatal(err)
		}
		found[pid] = strings.ReplaceAll(string(line), "\x00", " ")
	}
	return found
}

// signal sends a signal to the program itself.
func (d *childRun) signal(s os.Signal) {
	d.t.Helper()
	if err := d.cmd.Process.Signal(s); err != nil {
		d.t.Fatal(err)
	}
}

// until reads lines until one matches, and returns its submatches.
func (d *childRun) until(r *bufio.Reader, pattern string) []string {
	d.t.Helper()
	re := regexp.MustCompile(pattern)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			d.t.Fatalf("no %q: %v", pattern, err)
		}
		if found := re.FindStringSubmatch(line); found != nil {
			return found
		}
	}
}

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

// Run runs the tests and removes the directory.
func (r *testRun) Run() int {
	defer os.RemoveAll(r.dir)
	return r.tests.Run()
}

// TestScripts runs testdata/script.
func TestScripts(t *testing.T) {
	pipequota.Share(t)
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, scripts := "testdata/script", []string(nil)
	if !full.Everything() { // the others measure, each for as long as its shortest measurement takes
		dir, scripts = "", []string{filepath.Join(dir, "usage.txtar")}
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
