package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/penstock/penstock/proxy/cli"
	"github.com/penstock/penstock/proxy/internal/evidence"
	"github.com/penstock/penstock/proxy/internal/kerneltrace"
)

// TestTraceCommand: the process of an admin socket, or any other, is traced, or the capabilities
// that this takes are named.
func TestTraceCommand(t *testing.T) {
	t.Parallel()

	r := startRun(t, nil, "one")
	admin := []string{"--admin", "unix:" + filepath.Join(r.dir, "admin.sock")}
	want := "waiting for a CPU"
	if refused, ok := errors.AsType[*kerneltrace.PrivilegeError](kerneltrace.Allowed()); ok {
		want = "for want of " + strings.Join(refused.Missing, " and ")
	}
	for _, target := range [][]string{admin, {"--pid", strconv.Itoa(os.Getpid())}} {
		stdout, _ := r.tells(cli.ExitOK, append([]string{"trace", "--for", "300ms"}, target...)...)
		if !strings.Contains(stdout, want) || !strings.HasPrefix(stdout, "process "+strconv.Itoa(os.Getpid())) {
			t.Errorf("no %q in %s", want, stdout)
		}
	}
	stdout, _ := r.tells(cli.ExitOK, append([]string{"trace", "--for", "100ms", "--json"}, admin...)...)
	var report evidence.Report
	if err := json.Unmarshal([]byte(stdout), &report); err != nil || len(report.Processes) == 0 || report.Summary == "" {
		t.Errorf("%v: %s", err, stdout)
	}
	r.tells(cli.ExitUsage, "trace", "--for", "0")
	r.tells(cli.ExitUsage, "trace", "--pid", "1", "--cgroup", "/sys/fs/cgroup")
	if _, stderr := r.tells(cli.ExitError, "trace", "--pid", "4194304"); !strings.Contains(stderr, "there is no process 4194304") || !strings.Contains(stderr, "of penstock") {
		t.Error(stderr)
	}
	if _, stderr := r.tells(cli.ExitError, "trace", "--cgroup", "/nosuch"); !strings.Contains(stderr, "there is no cgroup /nosuch: write its directory") {
		t.Error(stderr)
	}
}
