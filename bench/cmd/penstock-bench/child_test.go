package main

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
)

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
