package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock/penstock/proxy/cli"
)

// TestProfileCommand: the running process's profile is a flame graph in a file, or stacks.
func TestProfileCommand(t *testing.T) {
	t.Parallel()

	r := startRun(t, nil, "one")
	at := "unix:" + filepath.Join(r.dir, "admin.sock")
	_, stderr := r.tells(cli.ExitOK, "profile", "--admin", at, "--for", "1s", "--format", "folded", "--no-kernel")
	if !strings.Contains(stderr, "no frames of the kernel (--no-kernel)") {
		t.Errorf("it says %q, not that frames are missing", stderr)
	}
	if _, stderr := r.tells(cli.ExitOK, "profile", "--admin", at, "--for", "1s", "--format", "folded"); os.Geteuid() == 0 && strings.Contains(stderr, "no frames") {
		t.Errorf("as root it says %q", stderr)
	}
	file := filepath.Join(r.dir, "cpu.svg")
	r.tells(cli.ExitOK, "profile", "--admin", at, "--for", "1s", "-o", file)
	if b, err := os.ReadFile(file); err != nil || !strings.HasPrefix(string(b), "<svg ") {
		t.Errorf("%q, %v", b, err)
	}
	for _, d := range []string{"0", "1500ms", "2m"} {
		r.tells(cli.ExitUsage, "profile", "--admin", at, "--for", d)
	}
}
