package sys_test

import (
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/sys"
)

func itoa(n int) string { return strconv.Itoa(n) }

func TestWaitExitedLeavesTheChildUnreaped(t *testing.T) {
	cmd := exec.Command("/proc/self/exe", "-test.run=^$")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	err := sys.WaitExited(pid)
	for err == syscall.EINTR {
		err = sys.WaitExited(pid)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat("/proc/" + itoa(pid)); err != nil {
		t.Error("it is gone:", err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if err := sys.WaitExited(pid); err != syscall.ECHILD {
		t.Errorf("after it was reaped: got %v, want ECHILD", err)
	}
}
