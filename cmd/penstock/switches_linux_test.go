package main

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// marked lists the processes that have a mark in their environment.
func marked(t *testing.T, mark string) []string {
	t.Helper()
	environs, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, path := range environs {
		environ, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(environ, []byte(mark)) {
			continue // gone, a zombie or somebody else's
		}
		line, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
		found = append(found, strings.ReplaceAll(string(line), "\x00", " "))
	}
	return found
}

// An interrupted comparison reports what it has, says so in one line and leaves
// nothing behind.
func TestSwitchesAreInterrupted(t *testing.T) {
	mark, file := "PENSTOCK_SWITCHES_TEST="+rand.Text(), filepath.Join(t.TempDir(), "f.json")
	// Called by the program's name, the test binary is the program.
	cmd := &exec.Cmd{
		Path: "/proc/self/exe",
		Args: []string{"penstock", "bench", "switches", "--connections", "20", "--seconds", "0.1", "--rounds", "1000", "--json", file},
		Env:  append(os.Environ(), mark),
	}
	var stdout bytes.Buffer
	cmd.Stdout = &stdout
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	kill := time.AfterFunc(demoPatience, func() { _ = cmd.Process.Kill() })
	defer kill.Stop()
	var last string
	interrupted := false
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		last = lines.Text()
		if !interrupted && strings.Contains(last, "round 1 of 1000") {
			interrupted = true
			if n := len(marked(t, mark)); n < 2 {
				t.Errorf("%d processes measure", n)
			}
			if err := cmd.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != exitError || last != "penstock: bench switches: interrupted" ||
		!strings.Contains(stdout.String(), "Interrupted: what follows is what was measured until then.\n") || !strings.Contains(stdout.String(), "\nthreads  ") {
		t.Errorf("exit code %d, %q, %q", code, last, stdout.String())
	}
	if text := content(t, file); !strings.Contains(text, `"interrupted": true`) || !strings.Contains(text, `"requests_per_second"`) {
		t.Errorf("document: %s", text)
	}
	if left := marked(t, mark); len(left) > 0 {
		t.Errorf("processes left: %q", left)
	}
}
