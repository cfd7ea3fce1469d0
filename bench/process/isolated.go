package process

import (
	"fmt"
	"os"

	"github.com/penstock/penstock/internal/sys"
)

// portRange is the range of local ports in a separate network namespace, where no other program uses ports. It
// allows some 64,000 connections from one address to another (ip(7), ip_local_port_range).
const portRange = "1024 65535"

// NewIsolatedGroup returns a group with its children in a separate network namespace. They see only their own
// loopback device, and no other process sees it. This process does not enter the namespace, except in functions
// that Do runs. The namespace ends with the group and the last child.
//
// It needs CAP_SYS_ADMIN. Without it, the error wraps syscall.EPERM. The thread that makes the namespace never
// runs anything else, and ends with the group.
func NewIsolatedGroup() (*Group, error) { return newGroup(isolate) }

// NewGroupWherePossible returns the group of [NewIsolatedGroup] if that is permitted. Otherwise it returns a group
// without a separate namespace, and the reason.
func NewGroupWherePossible() (g *Group, missing string) {
	g, err := NewIsolatedGroup()
	if err != nil {
		return NewGroup(), err.Error()
	}
	return g, ""
}

// isolate moves the calling thread into a new network namespace, and prepares the namespace for use.
func isolate() error {
	if err := sys.Unshare(sys.CLONE_NEWNET); err != nil {
		return fmt.Errorf("process: a network namespace: %w", os.NewSyscallError("unshare", err))
	}
	if err := sys.InterfaceUp("lo"); err != nil {
		return fmt.Errorf("process: loopback of a network namespace: %w", os.NewSyscallError("ioctl", err))
	}
	// This may fail, because /proc/sys may be read-only. The file shows the namespace of the thread that opens it.
	_ = os.WriteFile("/proc/sys/net/ipv4/ip_local_port_range", []byte(portRange), 0)
	return nil
}
