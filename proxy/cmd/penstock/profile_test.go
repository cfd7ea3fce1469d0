package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/pprof/profile"

	"github.com/penstock/penstock/proxy/cli"
)

// isProfile checks that a text is a profile.
func isProfile(t *testing.T, text string) {
	t.Helper()
	p, err := profile.ParseData([]byte(text))
	if err == nil {
		err = p.CheckValid()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestProfileCommand: the profile is for pprof, of the running process by the Go runtime or by perf events, or of any other one.
func TestProfileCommand(t *testing.T) {
	t.Parallel()

	r := startRun(t, nil, "one")
	at := "unix:" + filepath.Join(r.dir, "admin.sock")
	stdout, stderr := r.tells(cli.ExitOK, "profile", "--admin", at, "--for", "1s", "--no-kernel")
	isProfile(t, stdout)
	if !strings.Contains(stderr, "no frames of the kernel (--no-kernel)") {
		t.Errorf("it says %q, not that frames are missing", stderr)
	}
	file := filepath.Join(r.dir, "cpu.pprof")
	if _, stderr := r.tells(cli.ExitOK, "profile", "--admin", at, "--for", "1s", "-o", file); os.Geteuid() == 0 && strings.Contains(stderr, "no frames") || !strings.Contains(stderr, "go tool pprof -http=: "+file) {
		t.Errorf("it says %q", stderr)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	isProfile(t, string(b))
	for _, d := range []string{"0", "1500ms", "2m"} {
		r.tells(cli.ExitUsage, "profile", "--admin", at, "--for", d)
	}
	if _, stderr := r.tells(cli.ExitUsage, "profile", "--admin", at, "--format", "svg"); !strings.Contains(stderr, "go tool pprof -http=: FILE") {
		t.Errorf("of the former flag it says %q", stderr)
	}
}

// TestProfileOfAProcess: a process is profiled that is not asked for its status.
func TestProfileOfAProcess(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := call("profile", "--pid", strconv.Itoa(os.Getpid()), "--for", "1s")
	switch {
	case code != cli.ExitOK && os.Geteuid() != 0 && strings.Contains(stderr, "permission denied"):
		t.Skip("kernel.perf_event_paranoid does not let this user sample the kernel:", stderr)
	case code != cli.ExitOK:
		t.Fatal(code, stderr)
	}
	isProfile(t, stdout)
	if code, _, stderr := call("profile", "--pid", "4194304", "--for", "1s"); code != cli.ExitError || !strings.Contains(stderr, "there is no process 4194304") {
		t.Errorf("no process: %d, %q", code, stderr)
	}
}
