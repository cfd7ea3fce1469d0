package privilege

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// Network is Ordinary for a private network: the test goes on in a child with a new network namespace, which
// has only a loopback device that is down, and in which the child has the rights of root. Without CAP_SYS_ADMIN
// that needs a user namespace, where the user looks like root; the test is skipped if that is forbidden too.
func Network(t *testing.T) bool {
	t.Helper()
	return namespace(t, syscall.CLONE_NEWNET, "network")
}

// Mounts is Network for a mount namespace: only the test sees the file systems that it mounts.
func Mounts(t *testing.T) bool {
	t.Helper()
	return namespace(t, syscall.CLONE_NEWNS, "mount")
}

// NetworkAndMounts is Network and Mounts at once.
func NetworkAndMounts(t *testing.T) bool {
	t.Helper()
	return namespace(t, syscall.CLONE_NEWNET|syscall.CLONE_NEWNS, "network and mount")
}

// namespace runs the test in a child process with a namespace of its own; kind is its name.
func namespace(t *testing.T, flag uintptr, kind string) bool {
	t.Helper()
	if inChild(t) {
		return true
	}
	attr := &syscall.SysProcAttr{Cloneflags: flag, Pdeathsig: syscall.SIGKILL}
	err := possible(attr)
	if err != nil {
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
		if possible(attr) != nil {
			t.Skipf("no %s namespace: that takes root, or user namespaces: %v", kind, err)
		}
	}
	rerun(t, func(cmd *exec.Cmd) { cmd.SysProcAttr = attr })
	return false
}

func possible(attr *syscall.SysProcAttr) error {
	cmd := exec.Command(Self, "-test.list=^$")
	cmd.SysProcAttr = attr
	return cmd.Run()
}
