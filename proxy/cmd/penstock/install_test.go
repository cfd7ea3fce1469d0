package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock/penstock/proxy/internal/completion"
)

// TestInstall: packaging/install puts the program, its man pages, completions and units to their places.
func TestInstall(t *testing.T) {
	t.Parallel()

	dir, root := t.TempDir(), t.TempDir()
	program := filepath.Join(dir, "penstock")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, program); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "../../../packaging/install", program, root)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "PREFIX=/usr"}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for shell, path := range map[string]string{"bash": "bash-completion/completions/penstock", "zsh": "zsh/site-functions/_penstock", "fish": "fish/vendor_completions.d/penstock.fish"} {
		got, err := os.ReadFile(filepath.Join(root, "usr/share", path))
		if want, _ := completion.Script(shell); err != nil || string(got) != want {
			t.Errorf("completion of %s: %v, %d bytes", shell, err, len(got))
		}
	}
	for name := range manPages(t) {
		if _, err := os.Stat(filepath.Join(root, "usr/share/man/man1", name)); err != nil {
			t.Error(err)
		}
	}
	for _, path := range []string{"usr/bin/penstock", "usr/lib/systemd/system/penstock.service", "usr/lib/systemd/system/penstock.socket"} {
		if _, err := os.Stat(filepath.Join(root, path)); err != nil {
			t.Error(err)
		}
	}
	wrong := exec.Command("sh", "../../../packaging/install")
	if out, err := wrong.CombinedOutput(); err == nil || !strings.HasPrefix(string(out), "usage: ") {
		t.Errorf("without a program: %v, %s", err, out)
	}
}
