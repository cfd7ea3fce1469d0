package main

import (
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A soak that is interrupted reports what was done, and leaves nothing behind.
func TestSoakIsInterrupted(t *testing.T) {
	mark, file := "PENSTOCK_SOAK_TEST="+rand.Text(), filepath.Join(t.TempDir(), "f.json")
	// Called by the program's name, the test binary is the program.
	cmd := &exec.Cmd{
		Path: "/proc/self/exe",
		Args: []string{"penstock", "bench", "soak", "--connections", "4", "--duration", "1h", "--seed", "42", "--loops", "0", "--json", file},
		Env:  append(os.Environ(), mark),
	}
	interrupted := false
	stdout, last := interruptAt(t, cmd, func(line string) bool {
		if interrupted || !strings.Contains(line, " connections opened, ") {
			return false
		}
		interrupted = true
		if n := len(marked(t, mark)); n < 2 {
			t.Errorf("%d processes soak", n)
		}
		return true
	})
	if last != "penstock: bench soak: interrupted" ||
		!strings.Contains(stdout, "penstock bench soak, seed 42: 4 connections at once") ||
		!strings.Contains(stdout, "Interrupted: what follows is what was done until then.\n") {
		t.Errorf("%q, %q", last, stdout)
	}
	if text := content(t, file); !strings.Contains(text, `"interrupted": true`) || !strings.Contains(text, `"seed": 42`) {
		t.Errorf("document: %s", text)
	}
	if left := marked(t, mark); len(left) > 0 {
		t.Errorf("processes left: %q", left)
	}
}
