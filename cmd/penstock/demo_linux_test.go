package main

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/http"
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
	"github.com/penstock/penstock/internal/feature"
	"github.com/penstock/penstock/internal/testutil/pipequota"
)

// demoPatience is for what takes a moment.
const demoPatience = 30 * time.Second

// buildProgram builds the program as people do. The demo runs it several times
// over, so the test binary cannot stand in for it.
func buildProgram(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "penstock")
	if out, err := exec.Command("go", "build", "-o", path, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v: %s", err, out)
	}
	return path
}

// demoRun is a demo, or a bench, that runs.
type demoRun struct {
	t      *testing.T
	cmd    *exec.Cmd
	mark   string // in the environment of it and all of its children
	stdout *bufio.Reader
	stderr *bufio.Reader
}

// startDemo runs the demo of the program at path, with flags.
func startDemo(t *testing.T, path string, flags ...string) *demoRun {
	t.Helper()
	return startProgram(t, path, append([]string{"demo"}, flags...)...)
}

// startProgram runs the program at path.
func startProgram(t *testing.T, path string, args ...string) *demoRun {
	t.Helper()
	d := &demoRun{t: t, cmd: exec.Command(path, args...)}
	d.start()
	return d
}

// start runs d.cmd.
func (d *demoRun) start() {
	d.t.Helper()
	d.mark = "PENSTOCK_DEMO_TEST=" + rand.Text()
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

// end waits for the end, and returns what it printed since last asked and its
// exit code. Nothing that it started may be left.
func (d *demoRun) end() (stdout, stderr string, code int) {
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

// processes lists the command lines of the demo and its children by process
// id, as far as they live.
func (d *demoRun) processes() map[int]string {
	found := make(map[int]string)
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		d.t.Fatal(err)
	}
	for _, dir := range dirs {
		environ, err := os.ReadFile(filepath.Join(dir, "environ"))
		if err != nil || !bytes.Contains(environ, []byte(d.mark)) {
			continue // gone, a zombie or somebody else's
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

// child returns the process whose command line has a part.
func (d *demoRun) child(part string) int {
	d.t.Helper()
	for pid, line := range d.processes() {
		if strings.Contains(line, part) {
			return pid
		}
	}
	d.t.Fatalf("no %q among %v", part, d.processes())
	return 0
}

// signal sends a signal to the demo itself.
func (d *demoRun) signal(s os.Signal) {
	d.t.Helper()
	if err := d.cmd.Process.Signal(s); err != nil {
		d.t.Fatal(err)
	}
}

// until reads lines until one matches, and returns its submatches.
func (d *demoRun) until(r *bufio.Reader, pattern string) []string {
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

// find returns the submatch of a pattern in text.
func find(t *testing.T, text, pattern string) string {
	t.Helper()
	found := regexp.MustCompile(pattern).FindStringSubmatch(text)
	if found == nil {
		t.Fatalf("no %q in\n%s", pattern, text)
	}
	return found[1]
}

// fields takes a line apart at its columns.
func fields(line string) []string {
	return regexp.MustCompile(`  +`).Split(strings.TrimSpace(line), -1)
}

func TestDemo(t *testing.T) {
	path := buildProgram(t)
	for _, test := range []struct {
		name string
		run  func(t *testing.T, path string)
	}{
		{"reports", demoReports},
		{"stays", demoStays},
		{"is interrupted", demoIsInterrupted},
		{"is killed", demoIsKilled},
		{"loses a child", demoLosesAChild},
		{"finds its port in use", demoFindsItsPortInUse},
		{"writes to nobody", demoWritesToNobody},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, path) })
	}
}

func demoReports(t *testing.T, path string) {
	pipequota.Share(t)
	d := startDemo(t, path, "--seconds", "1.2", "--rounds", "2")
	stdout, stderr, code := d.end()
	if code != exitOK {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	if n := strings.Count(stderr, "\nround "); n != 8 {
		t.Errorf("%d lines for 8 trials:\n%s", n, stderr)
	}
	for _, row := range []string{"throughput", "CPU seconds per GB", "requests", "latency, p50", "latency, p99", "CPU per request"} {
		for _, cell := range fields(find(t, stdout, `(?m)^  (`+row+` .*)$`))[1:] {
			if strings.HasPrefix(cell, "0 ") || strings.HasPrefix(cell, report.Unknown) {
				t.Errorf("%s: no figure: %q", row, cell)
			}
		}
	}
	if !canSplice(t) {
		return
	}
	bulk, echo := fields(find(t, stdout, `(?m)^(  bulk .*)$`)), fields(find(t, stdout, `(?m)^(  echo .*)$`))
	if spliced := bulk[1]; !strings.HasSuffix(spliced, " MB") && !strings.HasSuffix(spliced, " GB") {
		t.Errorf("bulk: %s spliced", spliced)
	}
	if made, reused := bulk[3], bulk[4]; made == "0" || reused == "0" {
		t.Errorf("bulk: %s pipes made, %s reused", made, reused)
	}
	if copied := echo[2]; copied == "0 B" {
		t.Errorf("echo: %s copied", copied)
	}
}

func demoStays(t *testing.T, path string) {
	d := startDemo(t, path, "--seconds", "0.1", "--rounds", "1", "--stay")
	address := d.until(d.stdout, `^penstock stays at (.*)\n`)[1]
	if url := d.until(d.stdout, `(http://.*)/10G`)[1]; url != "http://"+address {
		t.Errorf("told to try %s", url)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: demoPatience}
	const size = 3_000_000
	resp, err := client.Get(fmt.Sprintf("http://%s/%d", address, size))
	if err != nil {
		t.Fatal(err)
	}
	n, err := io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	if n != size || err != nil {
		t.Errorf("got %d bytes, %v", n, err)
	}
	d.signal(syscall.SIGUSR1)
	if count := d.until(d.stdout, `^(\d+) connections, .* spliced, .* copied`)[1]; count != "1" {
		t.Errorf("%s connections for 1", count)
	}
	d.signal(syscall.SIGTERM)
	stdout, stderr, code := d.end()
	if code != exitOK || !strings.HasPrefix(stdout[strings.LastIndex(strings.TrimSpace(stdout), "\n")+1:], "1 connections, ") {
		t.Errorf("exit code %d, %q, %q", code, stdout, stderr)
	}
}

// measuring starts a demo and waits until it measures.
func measuring(t *testing.T, path string) *demoRun {
	d := startDemo(t, path, "--seconds", "30", "--rounds", "100")
	d.until(d.stderr, `^round 1 `)
	return d
}

func demoIsInterrupted(t *testing.T, path string) {
	d := measuring(t, path)
	d.signal(os.Interrupt)
	stdout, stderr, code := d.end()
	if code != exitError || stdout != "" || !strings.HasSuffix("\n"+stderr, "\npenstock: demo: interrupted\n") {
		t.Errorf("exit code %d, %q, %q", code, stdout, stderr)
	}
}

func demoIsKilled(t *testing.T, path string) {
	d := measuring(t, path)
	if n := len(d.processes()); n != 5 {
		t.Errorf("%d processes: %v", n, d.processes())
	}
	d.signal(syscall.SIGKILL)
	// Its children end on their own, soon.
	for deadline := time.Now().Add(demoPatience); len(d.processes()) > 0 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	d.end()
}

func demoLosesAChild(t *testing.T, path string) {
	for part, name := range map[string]string{
		"part origin": "the origin",
		"part load":   "the load",
		"part rival":  "io.Copy",
		" proxy ":     "penstock",
	} {
		d := measuring(t, path)
		if err := syscall.Kill(d.child(part), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		_, stderr, code := d.end()
		last := regexp.MustCompile(`\npenstock: demo: ` + name + ` \(pid \d+\) ended unexpectedly: signal: killed\n$`)
		if code != exitError || !last.MatchString("\n"+stderr) {
			t.Errorf("%s: exit code %d, %q", name, code, stderr)
		}
	}
}

func demoFindsItsPortInUse(t *testing.T, path string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	d := startDemo(t, path, "--listen", l.Addr().String())
	stdout, stderr, code := d.end()
	if code != exitError || stdout != "" || strings.Count(stderr, "\n") != 1 ||
		!strings.Contains(stderr, l.Addr().String()) || !strings.Contains(stderr, "address already in use") {
		t.Errorf("exit code %d, %q, %q", code, stdout, stderr)
	}
}

// A reader that goes away, as head does, ends nothing but the reading.
func demoWritesToNobody(t *testing.T, path string) {
	cmd := exec.Command(path, "demo", "--seconds", "0.1", "--rounds", "1")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = w
	_ = r.Close()
	defer w.Close()
	if err := cmd.Run(); err != nil {
		t.Error(err)
	}
}

func TestDemoRefusesWrongFlags(t *testing.T) {
	for _, flags := range [][]string{
		{"--rounds", "0"},
		{"--rounds", "x"},
		{"--seconds", "0"},
		{"--seconds", "NaN"},
		{"--seconds", "1e300"},
		{"--listen", "unix:/tmp/x"},
	} {
		var stdout, stderr bytes.Buffer
		e := &env{args: append([]string{"demo"}, flags...), stdout: &stdout, stderr: &stderr, getenv: os.Getenv}
		if code := run(e); code != exitUsage || strings.Count(stderr.String(), "\n") != 1 {
			t.Errorf("%q: exit code %d, %q", flags, code, stderr.String())
		}
	}
}

// canSplice says whether the report must show spliced bytes.
func canSplice(t *testing.T) bool {
	t.Helper()
	if err := feature.Splice(); err != nil {
		t.Logf("not looking for spliced bytes: %v", err)
		return false
	}
	return true
}
