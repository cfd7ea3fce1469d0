package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock/penstock/proxy/cli"
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
