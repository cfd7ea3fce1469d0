package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock/penstock/proxy/cli"
	"github.com/penstock/penstock/proxy/internal/completion"
)

// setting returns the values of a setting in one of the project's units.
func setting(t *testing.T, unit, name string) (values []string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "..", "packaging", "systemd", unit))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), name+"="); ok {
			values = append(values, value)
		}
	}
	return values
}

// TestUnits: the program has the flags of its unit, the configuration beside it is valid and
// names the passed sockets, and the notifications match the unit's type.
func TestUnits(t *testing.T) {
	t.Parallel()

	start := setting(t, "penstock.service", "ExecStart")
	if len(start) != 1 {
		t.Fatalf("ExecStart %q", start)
	}
	args := strings.Fields(start[0])
	if filepath.Base(args[0]) != "penstock" || args[1] != "run" {
		t.Errorf("it starts %q", args[:2])
	}
	_, help, _ := call("run", "--help")
	for _, flag := range args[2:] {
		if strings.HasPrefix(flag, "--") && !strings.Contains(help, flag+"=") {
			t.Errorf("penstock run has no %s", flag)
		}
	}
	config := filepath.Join("..", "..", "..", "packaging", "systemd", "penstock.yaml")
	if code, _, complaint := call("check", "--config", config); code != cli.ExitOK {
		t.Errorf("the configuration is not good: %s", complaint)
	}
	text, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range setting(t, "penstock.socket", "FileDescriptorName") {
		if !strings.Contains(string(text), `"systemd:`+name+`"`) {
			t.Errorf("no listener has the socket %s", name)
		}
	}
	if got := setting(t, "penstock.service", "Type"); len(got) != 1 || got[0] != "notify-reload" {
		t.Errorf("Type %q: it says when it reloads", got)
	}
	if got := setting(t, "penstock.service", "RuntimeDirectory"); len(got) != 1 || !strings.Contains(string(text), "unix:/run/"+got[0]+"/") {
		t.Errorf("RuntimeDirectory %q is not that of the admin socket", got)
	}
}

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
