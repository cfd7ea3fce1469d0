package process

import (
	"fmt"
	"os"

	"github.com/penstock/penstock/internal/sys"
)

// portRange is the range requested in a namespace of its own, where no other program's ports
// are in the way. It has a port for each of some 64,000 connections from one address to
// another (ip(7), ip_local_port_range).
const portRange = "1024 65535"

// NewIsolatedGroup returns a group of children in a network namespace of their own. They see
// only their own loopback device, and no other process sees it. This process does not enter
// it, except for functions that Do runs. The namespace ends with the last child and the
// group.
//
// It takes CAP_SYS_ADMIN: without it the error wraps syscall.EPERM. Nothing outlives the
// thread that makes the namespace: it never runs anything else, and ends with the group.
func NewIsolatedGroup() (*Group, error) { return newGroup(isolate) }

// NewGroupWherePossible is [NewIsolatedGroup] if that is permitted. Else it returns a group
// without a namespace of its own, and the reason.
func NewGroupWherePossible() (g *Group, missing string) {
	g, err := NewIsolatedGroup()
	if err != nil {
		return NewGroup(), err.Error()
	}
	return g, ""
}

// isolate moves the calling thread into a new network namespace and makes
// that usable.
func isolate() error {
	if err := sys.Unshare(sys.CLONE_NEWNET); err != nil {
		return fmt.Errorf("process: a network namespace: %w", os.NewSyscallError("unshare", err))
	}
	if err := sys.InterfaceUp("lo"); err != nil {
		return fmt.Errorf("process: loopback of a network namespace: %w", os.NewSyscallError("ioctl", err))
	}
	// A wish: /proc/sys may be read-only. It shows the namespace of the thread
	// that opens the file.
	_ = os.WriteFile("/proc/sys/net/ipv4/ip_local_port_range", []byte(portRange), 0)
	return nil
}
