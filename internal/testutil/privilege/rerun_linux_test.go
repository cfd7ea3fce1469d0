package privilege

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestRerunFails: a child that fails, or that runs nothing, must not pass for a
// success. The verdict is rerun's on its own *testing.T, so it is observed from a
// child of its own.
func TestRerunFails(t *testing.T) {
	for _, how := range []string{"fails", "runs nothing"} {
		t.Run(how, func(t *testing.T) {
			cmd := exec.Command(Self, "-test.run=^TestVerdict$", "-test.v")
			cmd.Env = append(os.Environ(), "VERDICT="+how)
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), "--- FAIL: TestVerdict") {
				t.Fatalf("%v\n%s", err, out)
			}
		})
	}
}

// TestVerdict is the test that TestRerunFails looks at.
func TestVerdict(t *testing.T) {
	how, ok := os.LookupEnv("VERDICT")
	if !ok {
		return // nothing to look at: TestRerunFails runs it
	}
	if inChild(t) {
		t.Fatal("as it was asked to")
	}
	rerun(t, func(cmd *exec.Cmd) {
		if how == "runs nothing" {
			cmd.Args = []string{Self, "-test.run=^$", "-test.v"}
		}
	})
}
