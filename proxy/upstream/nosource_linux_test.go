package upstream_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/penstock/penstock/proxy/upstream"
)

const child = "PENSTOCK_UPSTREAM_CHILD"

// A machine without IPv6 answers EADDRNOTAVAIL as well. It is made of a network
// namespace whose loopback is down.
func TestNoAddressToConnectFromIsNoPortExhaustion(t *testing.T) {
	if os.Getenv(child) != "" {
		_, err := group(t, nil, "[::1]:80").Dial(context.Background())
		if !errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, upstream.ErrPortsExhausted) {
			t.Errorf("error is %v, want EADDRNOTAVAIL but no ErrPortsExhausted", err)
		}
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), child+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EINVAL) {
		t.Skipf("needs a user namespace and a network namespace, which this system refuses: %v", err)
	}
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
