package privilege

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/sys"
)

// Ordinary reports whether the test should go on, which it does as an ordinary user. As root it runs t in a
// child without capabilities, and returns false once the child has passed. No other process has the child's
// user and group IDs, so that only the child uses the quotas of its user, for example of pipes. As any other
// user the process goes on.
func Ordinary(t *testing.T) bool {
	t.Helper()
	if os.Getuid() != 0 {
		return true
	}
	uid := uint32(60000 + os.Getpid()%5000)
	rerun(t, func(cmd *exec.Cmd) {
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Credential: &syscall.Credential{Uid: uid, Gid: uid},
			Pdeathsig:  syscall.SIGKILL,
		}
		cmd.Dir = "/"
	})
	return false
}

// Alone is Ordinary for a test of a user's quotas. It is skipped for users other than root, because they have
// other processes.
func Alone(t *testing.T) bool {
	t.Helper()
	if os.Getuid() != 0 && !inChild(t) {
		t.Skip("needs root, to become a user of whom no other process runs: quotas are per user")
	}
	return Ordinary(t)
}

// Refused is Ordinary for a sandbox: the test goes on in a child in which the system calls with those numbers
// (sys.SYS_SPLICE and so on) fail with errno. It is skipped if seccomp(2) is not available.
func Refused(t *testing.T, errno syscall.Errno, numbers ...uintptr) bool {
	t.Helper()
	if !inChild(t) {
		rerun(t, nil)
		return false
	}
	if err := sys.SeccompRefuse(errno, numbers...); err != nil {
		t.Skipf("no sandbox: %v", os.NewSyscallError("seccomp", err))
	}
	return true
}

// NoNewCode is Ordinary for a process that may not make memory executable that it has written, like a systemd
// unit with MemoryDenyWriteExecute. It is skipped if the kernel does not know PR_SET_MDWE (before Linux 6.3).
func NoNewCode(t *testing.T) bool {
	t.Helper()
	if !inChild(t) {
		rerun(t, nil)
		return false
	}
	if err := sys.DenyWriteExecute(); err != nil {
		t.Skipf("no such sandbox: %v", os.NewSyscallError("prctl PR_SET_MDWE", err))
	}
	return true
}
