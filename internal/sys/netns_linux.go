package sys

import "golang.org/x/sys/unix"

// CLONE_NEWNET is the flag of unshare(2) for a new network namespace.
const CLONE_NEWNET = unix.CLONE_NEWNET

// Unshare takes the calling thread, and no other, out of the namespaces that
// flags name, and into new ones (unshare(2)). The caller has locked its
// goroutine to the thread, and never unlocks it: the runtime would run other
// goroutines there.
func Unshare(flags int) error { return unix.Unshare(flags) }

// Gettid returns the id of the calling thread (gettid(2)).
func Gettid() int { return unix.Gettid() }

// InterfaceUp sets IFF_UP of a network interface of the calling thread's
// network namespace, such as "lo" (netdevice(7), SIOCGIFFLAGS and
// SIOCSIFFLAGS). The error is EINVAL for a name that is too long.
func InterfaceUp(name string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq(name)
	if err != nil {
		return unix.EINVAL
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, request); err != nil {
		return err
	}
	request.SetUint16(request.Uint16() | unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request)
}
