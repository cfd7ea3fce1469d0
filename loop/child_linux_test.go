package loop_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/penstock/penstock/internal/testutil/privilege"
)

// childOf names, in a child's environment, the test that it is to run.
const childOf = "PENSTOCK_LOOP_TEST"

// inChild reports whether the test shall go on: it does in a process of its own, with
// more in its environment, whose verdict becomes that of t.
func inChild(t *testing.T, env ...string) bool {
	t.Helper()
	if os.Getenv(childOf) == t.Name() {
		return true
	}
	cmd := exec.Command(privilege.Self, "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=2m")
	cmd.Env = append(append(os.Environ(), childOf+"="+t.Name(), "GORACE="+os.Getenv("GORACE")+" atexit_sleep_ms=20"), env...)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Fatalf("in a child: %v\n%s", err, out)
	}
	t.Logf("in a child:\n%s", out)
	return false
}
