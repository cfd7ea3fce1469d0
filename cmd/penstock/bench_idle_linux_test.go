package main

import (
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// An interrupted measurement reports what it has, and leaves nothing behind.
func TestIdleIsInterrupted(t *testing.T) {
	mark, file := "PENSTOCK_IDLE_TEST="+rand.Text(), filepath.Join(t.TempDir(), "f.json")
	// Called by the program's name, the test binary is the program.
	cmd := &exec.Cmd{
		Path: "/proc/self/exe",
		Args: []string{"penstock", "bench", "idle", "--sessions", "20", "--rest", "0.02", "--seconds", "0.05", "--rounds", "1000", "--json", file},
		Env:  append(os.Environ(), mark),
	}
	interrupted := false
	stdout, last := interruptAt(t, cmd, func(line string) bool {
		if interrupted || !strings.Contains(line, "penstock   ") || !strings.Contains(line, " for a message") {
			return false
		}
		interrupted = true
		if n := len(marked(t, mark)); n < 3 {
			t.Errorf("%d processes measure", n)
		}
		return true
	})
	if last != "penstock: bench idle: interrupted" ||
		!strings.Contains(stdout, "Interrupted: what follows is what was measured until then.\n") || !strings.Contains(stdout, "\ntime for a message ") {
		t.Errorf("%q, %q", last, stdout)
	}
	if text := content(t, file); !strings.Contains(text, `"interrupted": true`) || !strings.Contains(text, `"seconds_per_message"`) {
		t.Errorf("document: %s", text)
	}
	if left := marked(t, mark); len(left) > 0 {
		t.Errorf("processes left: %q", left)
	}
}
