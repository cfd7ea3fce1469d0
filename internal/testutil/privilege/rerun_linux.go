package privilege

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"
)

// marker is the environment variable that names the test for a child to run.
const marker = "PENSTOCK_TEST_RERUN"

// Self is the running program. A user that may not enter the directory of its path can still execute it by this
// one.
const Self = "/proc/self/exe"

func inChild(t *testing.T) bool { return os.Getenv(marker) == t.Name() }

// InChild reports whether this process was started to run t alone. If not, it starts such a process, with env
// added to its environment, and passes its verdict on.
func InChild(t *testing.T, env ...string) bool {
	t.Helper()
	if inChild(t) {
		return true
	}
	rerun(t, func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, env...) })
	return false
}

// rerun runs t in a child that prepare has adapted, and passes its verdict on. A child that does not reach the
// end of t fails it.
func rerun(t *testing.T, prepare func(*exec.Cmd)) {
	t.Helper()
	cmd := exec.Command(Self, "-test.run="+pattern(t.Name()), "-test.v", "-test.count=1")
	if testing.Short() {
		cmd.Args = append(cmd.Args, "-test.short")
	}
	if d, ok := t.Deadline(); ok {
		cmd.Args = append(cmd.Args, fmt.Sprintf("-test.timeout=%s", max(time.Until(d)-time.Second, time.Second)))
	}
	// A program with the race detector sleeps for a second before it exits.
	cmd.Env = append(os.Environ(), marker+"="+t.Name(), "GORACE="+os.Getenv("GORACE")+" atexit_sleep_ms=20")
	if prepare != nil {
		prepare(cmd)
	}
	out, err := cmd.CombinedOutput()
	switch {
	case err != nil:
		t.Fatalf("in a child: %v\n%s", err, out)
	case strings.Contains(string(out), "--- SKIP: "+t.Name()+" ("):
		t.Skipf("in a child:\n%s", out)
	case !strings.Contains(string(out), "--- PASS: "+t.Name()+" ("):
		t.Fatalf("the child did not run the test:\n%s", out)
	}
	t.Logf("in a child:\n%s", out)
}

// pattern returns a pattern that selects exactly the test with that name.
func pattern(name string) string {
	parts := strings.Split(name, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	return strings.Join(parts, "/")
}
