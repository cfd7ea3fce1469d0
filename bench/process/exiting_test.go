package process

import (
	"os"
	"os/exec"
	"testing"
)

// TestExiting: a process that has ended and was not waited for is exiting, and this process is
// not.
func TestExiting(t *testing.T) {
	if exiting(os.Getpid()) {
		t.Error("this process is exiting")
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^$")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for b := make([]byte, 512); ; {
		if _, err := out.Read(b); err != nil {
			break // its descriptors are closed, usually by exit(2)
		}
	}
	for !exiting(cmd.Process.Pid) { // it becomes a zombie soon
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if !exiting(cmd.Process.Pid) {
		t.Error("a process that is gone is not")
	}
}
