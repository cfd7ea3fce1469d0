//go:build linux

package ports

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/sys"
)

// within names the binary that this process becomes once its network is up.
const within = "PENSTOCK_PORTS_BINARY"

func TestMain(m *testing.M) {
	if binary := os.Getenv(within); binary != "" {
		err := sys.InterfaceUp("lo")
		if err == nil {
			err = syscall.Exec(binary, append([]string{binary}, os.Args[1:]...), os.Environ())
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	os.Exit(m.Run())
}

// alone prepares a command that runs a test binary in a network namespace with nothing but a loopback
// device: some of the suites dial outside.
func alone(t *testing.T, binary, dir string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), within+"="+binary)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	probe := *cmd
	probe.Env, probe.Args = os.Environ(), []string{cmd.Args[0], "-test.run=^$"}
	if err := probe.Run(); err != nil {
		t.Skipf("no network namespace: that takes root, or user namespaces: %v", err)
	}
	return cmd
}
