package main

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/penstock/penstock/bench/report"
	"github.com/penstock/penstock/internal/testutil/software"
	"github.com/penstock/penstock/proxy/cli"
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
		{"writes to standard output", benchWritesToStandardOutput},
		{"is interrupted", benchIsInterrupted},
		{"is killed", benchIsKilled},
		{"rolling is interrupted", rollingIsInterrupted},
		{"is interrupted while a program hangs", benchNamesWhoHangs},
		{"needs its baseline", benchNeedsItsBaseline},
		{"leaves out whom it cannot find", benchLeavesOut},
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
		where = "in a network namespace"
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

func benchWritesToStandardOutput(t *testing.T, path string) {
	d := startProgram(t, path, append(tiny, "--scenarios", "echo-64-1", "--json", "-")...)
	stdout, stderr, code := d.end()
	if doc := document(t, []byte(stdout)); code != cli.ExitOK || len(doc.Scenarios) != 1 || !strings.HasSuffix(doc.Command, " --json -") {
		t.Errorf("exit code %d: %+v", code, doc)
	}
	if !strings.Contains(stderr, "\n### echo-64-1: ") || !strings.Contains(stderr, "\n| penstock (baseline) ") {
		t.Errorf("no report in %s", stderr)
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
	if !strings.Contains(stdout, "Interrupted: what follows is what was measured until then.") || !strings.Contains(stdout, "\n| penstock (baseline) ") {
		t.Errorf("report:\n%s", stdout)
	}
}

func benchIsKilled(t *testing.T, path string) {
	d := long(t, path)
	if n := len(d.processes()); n != 4 {
		t.Errorf("%d processes: %v", n, d.processes())
	}
	d.signal(syscall.SIGKILL)
	for deadline := time.Now().Add(patience); len(d.processes()) > 0 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond) // its children end by themselves, soon
	}
	d.end()
}

// rollingIsInterrupted: so are incident, reload and tls.
func rollingIsInterrupted(t *testing.T, path string) {
	file := filepath.Join(t.TempDir(), "f.json")
	d := startProgram(t, path, "rolling", "--scenario", "single", "--peers", "penstock", "--seconds", "0.1", "--rounds", "100", "--json", file)
	d.until(d.stderr, `^round 2 of 100 +single`)
	d.signal(os.Interrupt)
	stdout, stderr, code := d.end()
	if code != cli.ExitError || !strings.HasSuffix(stderr, "penstock-bench: rolling: interrupted\n") {
		t.Errorf("exit code %d, %q", code, stderr)
	}
	if !strings.Contains(stdout, "Interrupted: what follows is what was measured until then.") || !strings.Contains(stdout, "\n### single: the only endpoint is away") {
		t.Errorf("report:\n%s", stdout)
	}
	text, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(text), `"interrupted": true`) || !strings.Contains(string(text), `"lost_under_way"`) {
		t.Errorf("document: %v, %s", err, text)
	}
}

// benchNamesWhoHangs: the first signal ends a binary that hangs.
func benchNamesWhoHangs(t *testing.T, path string) {
	dir := t.TempDir()
	binary, began := filepath.Join(dir, "nginx"), filepath.Join(dir, "began")
	if err := os.WriteFile(binary, []byte("#!/bin/sh\n>"+began+"\nsleep 1000\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	d := startProgram(t, path, append(tiny, "--peers", "nginx", "--binary", "nginx="+binary)...)
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if _, err := os.Stat(began); err == nil {
			break
		}
	}
	d.signal(os.Interrupt)
	if stdout, stderr, code := d.end(); code != cli.ExitError || stderr != "penstock-bench: interrupted\n" || stdout != "" {
		t.Errorf("exit code %d, %q, %q", code, stdout, stderr)
	}
}

// benchNeedsItsBaseline: without it there are no ratios, which is a failure.
func benchNeedsItsBaseline(t *testing.T, path string) {
	d := startProgram(t, path, append(tiny, "--scenarios", "echo-64-1", "--baseline", "haproxy-1", "--binary", "haproxy=/bin/true")...)
	stdout, stderr, code := d.end()
	if code != cli.ExitError || !strings.Contains(stderr, "echo-64-1, haproxy-1: ") || !strings.Contains(stderr, "is /bin/true really haproxy? ") || !strings.Contains(stdout, "\n### Failed\n") {
		t.Errorf("exit code %d, %q, %s", code, stderr, stdout)
	}
}

func benchLeavesOut(t *testing.T, path string) {
	d := startProgram(t, path, "--rounds", "1", "--seconds", "0.05", "--no-syscalls", "--scenarios", "echo-64-1", "--binary", "envoy=/not/here", "--json", "-")
	stdout, _, code := d.end()
	if code != cli.ExitOK {
		t.Errorf("exit code %d", code)
	}
	for _, l := range document(t, []byte(stdout)).LeftOut {
		if l.Name == "envoy" && strings.Contains(l.Reason, "/not/here") {
			return
		}
	}
	t.Errorf("envoy is not among those left out: %s", stdout)
}
