package sockopt

import (
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/penstock/penstock/internal/sys"
)

// MaxCongestion is the longest name of a congestion control, in bytes.
const MaxCongestion = sys.MaxCongestion

// A Congestion is the congestion control of sockets that connect. A nil Congestion leaves them the system's default,
// and costs no call. It is safe for concurrent use.
type Congestion struct {
	name    string
	refused atomic.Int64
}

// NewCongestion returns the congestion control with a name, or nil for "".
func NewCongestion(name string) *Congestion {
	if name == "" {
		return nil
	}
	return &Congestion{name: name}
}

// Name returns the name of the congestion control, or "" for a nil Congestion.
func (c *Congestion) Name() string {
	if c == nil {
		return ""
	}
	return c.name
}

// Refused returns for how many sockets the kernel has refused this congestion control. They have the system's default.
func (c *Congestion) Refused() int64 {
	if c == nil {
		return 0
	}
	return c.refused.Load()
}

// Set sets the congestion control on a TCP socket. If the kernel refuses, the socket is counted, and keeps the system's
// default.
func (c *Congestion) Set(fd int) {
	if c != nil && sys.SetCongestion(fd, c.name) != nil {
		c.refused.Add(1)
	}
}

// Control is [Congestion.Set] as a net.Dialer.Control. It does nothing to sockets other than TCP.
func (c *Congestion) Control(network string, conn syscall.RawConn) error {
	if c == nil || !strings.HasPrefix(network, "tcp") {
		return nil
	}
	return conn.Control(func(fd uintptr) { c.Set(int(fd)) })
}

// Congestions returns the congestion controls that this kernel has, and the names that a process may
// use without CAP_NET_ADMIN. Errors wrap the cause of a failed read of the kernel's lists.
func Congestions() (available, allowed []string, err error) { return sys.CongestionControls() }

// TryCongestion returns the congestion control that a new TCP socket of this process has after it was given one, read
// back from the kernel. If setsockopt(2) failed, the error wraps its error: syscall.EPERM if the name needs
// CAP_NET_ADMIN. Any other error means that the answer is unknown.
func TryCongestion(name string) (used string, err error) {
	fd, err := sys.StreamSocket(netip.IPv6Unspecified())
	if err != nil {
		fd, err = sys.StreamSocket(netip.IPv4Unspecified()) // a kernel without IPv6
	}
	if err != nil {
		return "", os.NewSyscallError("socket", err)
	}
	defer func() { _ = sys.Close(fd) }()
	set := os.NewSyscallError("setsockopt TCP_CONGESTION", sys.SetCongestion(fd, name))
	used, err = sys.Congestion(fd)
	if set != nil {
		return used, set
	}
	return used, os.NewSyscallError("getsockopt TCP_CONGESTION", err)
}
