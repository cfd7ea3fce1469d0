package software

import (
	"context"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/testutil/condition"
	"github.com/penstock/penstock/internal/testutil/race"
)

// Build builds programs, by import path, into a directory that is removed at the end of the test. They have the
// race detector if the test has.
func Build(t testing.TB, packages ...string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	args := []string{"build", "-buildvcs=false", "-o", dir + "/"}
	if race.Enabled {
		args = append(args, "-race")
	}
	cmd := exec.Command("go", append(args, packages...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return dir
}

// Long skips a test that runs for long in programs that are not built from the package under test. It skips it
// in the two runs that would only find what the first run finds: with -short, the run of an ordinary user, and
// with the race detector.
func Long(t testing.TB, of string) {
	t.Helper()
	if testing.Short() {
		t.Skipf("-short: %s, for every user the same; the run without -short has it", of)
	}
	Unraced(t, of)
}

// Unraced skips a test that runs for long in programs without the race detector, in the run that looks for
// races.
func Unraced(t testing.TB, of string) {
	t.Helper()
	if race.Enabled {
		t.Skipf("%s, in which the race detector finds nothing; the run without it has it", of)
	}
}

// Need returns the path of a program. Without it the test is skipped, or fails if CI is set; pkg is the Debian
// package to install.
func Need(t testing.TB, program, pkg string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		missing(t, program, pkg)
	}
	return path
}

func missing(t testing.TB, program, pkg string) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatalf("%s is not installed (Debian package %s)", program, pkg)
	}
	t.Skipf("%s is not installed (Debian package %s)", program, pkg)
}

// Postgres returns the directory of the newest PostgreSQL's programs, also the programs that Debian keeps
// beside the server, outside of PATH.
func Postgres(t testing.TB) (bin string) {
	t.Helper()
	if path, err := exec.LookPath("initdb"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			return filepath.Dir(path)
		}
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(found) == 0 {
		missing(t, "initdb", "postgresql")
	}
	return filepath.Dir(slices.Max(found))
}

// Run runs a client to its end and returns its output. It fails the test unless the client succeeds.
func Run(t testing.TB, command ...string) string {
	t.Helper()
	return RunAs(t, nil, "", command...)
}

// RunAs is Run for a program that u runs in a directory; nil means the test's own user.
func RunAs(t testing.TB, u *user.User, dir string, command ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), condition.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: Credential(t, u)}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", strings.Join(command, " "), err, out, stderr.String())
	}
	return string(out)
}
