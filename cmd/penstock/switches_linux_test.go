package main

import (
	"bytes"
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
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
	interrupted := false
	stdout, last := interruptAt(t, cmd, func(line string) bool {
		if interrupted || !strings.Contains(line, "round 1 of 1000") {
			return false
		}
		interrupted = true
		if n := len(marked(t, mark)); n < 2 {
			t.Errorf("%d processes measure", n)
		}
		return true
	})
	if last != "penstock: bench switches: interrupted" ||
		!strings.Contains(stdout, "Interrupted: what follows is what was measured until then.\n") || !strings.Contains(stdout, "\nthreads  ") {
		t.Errorf("%q, %q", last, stdout)
	}
	if text := content(t, file); !strings.Contains(text, `"interrupted": true`) || !strings.Contains(text, `"requests_per_second"`) {
		t.Errorf("document: %s", text)
	}
	if left := marked(t, mark); len(left) > 0 {
		t.Errorf("processes left: %q", left)
	}
}
