package sys

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// MaxCongestion is the longest name of a congestion control: TCP_CA_NAME_MAX without its terminating zero
// (include/net/tcp.h). The kernel silently cuts off a longer one.
const MaxCongestion = 15

// ErrCongestion means that one of the kernel's files does not have the name of a congestion control.
var ErrCongestion = errors.New("it is not the name of a congestion control")

// Files of the congestion controls in the calling thread's network namespace
// (Documentation/networking/ip-sysctl.rst).
const (
	congestionAvailable = "/proc/sys/net/ipv4/tcp_available_congestion_control"
	congestionAllowed   = "/proc/sys/net/ipv4/tcp_allowed_congestion_control"
	congestionDefault   = "/proc/sys/net/ipv4/tcp_congestion_control"
)

// CongestionControls returns the available congestion controls of this kernel, and the allowed ones: a process may
// use these without CAP_NET_ADMIN. Modules that are not loaded yet may have more. Errors wrap the cause of a failed read,
// or ErrCongestion. It is safe for concurrent use.
func CongestionControls() (available, allowed []string, err error) {
	if available, err = congestionNames(congestionAvailable); err != nil {
		return nil, nil, err
	}
	allowed, err = congestionNames(congestionAllowed)
	return available, allowed, err
}

// DefaultCongestion returns the congestion control of sockets for which none was set.
func DefaultCongestion() (string, error) {
	names, err := congestionNames(congestionDefault)
	if err != nil {
		return "", err
	}
	return names[0], nil
}

func congestionNames(file string) ([]string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	names := strings.Fields(string(text))
	if len(names) == 0 {
		return nil, &os.PathError{Op: "read", Path: file, Err: ErrCongestion}
	}
	return names, nil
}

// SetCongestion sets the congestion control of a TCP socket (TCP_CONGESTION, tcp(7)); sockets that a listener
// accepts inherit it (net/ipv4/tcp_minisocks.c, tcp_ca_openreq_child). A route with its own congctl overrides
// it. ENOENT: the kernel has no control of that name; EPERM: it needs CAP_NET_ADMIN. It goes through the
// scheduler, because for a process with that capability the kernel may load a module (net/ipv4/tcp_cong.c,
// tcp_ca_find_autoload).
func SetCongestion(fd int, name string) error {
	if name == "" || len(name) > MaxCongestion {
		return syscall.EINVAL
	}
	_, _, e := syscall.Syscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION,
		uintptr(unsafe.Pointer(unsafe.StringData(name))), uintptr(len(name)), 0)
	return errnoErr(e)
}

// Congestion returns the congestion control of a TCP socket.
func Congestion(fd int) (string, error) {
	return unix.GetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION)
}
