package main

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/bench/claims"
	"github.com/penstock/penstock/proxy/cli"
)

// interruptClaims runs bench claims with a file until it measures the named claim, interrupts it,
// and returns its output and its last line of progress.
func interruptClaims(t *testing.T, file, at string, names ...string) (stdout, last string) {
	t.Helper()
	// Called by the program's name, the test binary is the program.
	cmd := &exec.Cmd{Path: "/proc/self/exe", Args: append([]string{"penstock-bench", "claims", "--json", file}, names...)}
	return interruptAt(t, cmd, func(line string) bool { return line == "penstock-bench: measuring "+at })
}

// interruptAt runs cmd, interrupts it when at reports true for a line of its standard error, and
// returns its output and the last of those lines. It must end with exitError.
func interruptAt(t *testing.T, cmd *exec.Cmd, at func(line string) bool) (stdout, last string) {
	t.Helper()
	var out bytes.Buffer
	cmd.Stdout = &out
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	kill := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer kill.Stop()
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		if last = lines.Text(); at(last) {
			if err := cmd.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != cli.ExitError {
		t.Errorf("exit code %d, %q, %q", code, last, out.String())
	}
	return out.String(), last
}

// The results of an interrupted run are printed and written; if there are none,
// the file keeps its content.
func TestInterruptedClaimsKeepWhatTheyHave(t *testing.T) {
	const end = "penstock-bench: claims: claim one-connection: interrupted"
	file := filepath.Join(t.TempDir(), "figures")
	stdout, last := interruptClaims(t, file, "one-connection", "iovec-limit", "one-connection", "pool-pause", "stop-timer")
	if last != end || !strings.Contains(stdout, "written, as one iovec 2,147,4") || !strings.Contains(stdout, "not measured") {
		t.Errorf("%q, %s", last, stdout)
	}
	written, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	rec, err := claims.Read(bytes.NewReader(written))
	if err != nil || rec.Results[0].ID != "iovec-limit" || len(rec.Results) == 4 {
		t.Errorf("%v, %s", err, written)
	}
	stdout, last = interruptClaims(t, file, "one-connection", "one-connection", "pool-pause")
	if kept, err := os.ReadFile(file); last != end || stdout != "" || err != nil || !bytes.Equal(kept, written) {
		t.Errorf("%q, %q, %v, %s", last, stdout, err, kept)
	}
}
