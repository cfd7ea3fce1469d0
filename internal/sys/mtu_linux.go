package sys

import "golang.org/x/sys/unix"

// SetInterfaceMTU sets how many bytes a packet of a network interface of the
// calling thread's network namespace may have (netdevice(7), SIOCSIFMTU). The error
// is EINVAL for a name that is too long, EPERM without CAP_NET_ADMIN there.
func SetInterfaceMTU(name string, mtu uint32) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq(name)
	if err != nil {
		return unix.EINVAL
	}
	request.SetUint32(mtu)
	return unix.IoctlIfreq(fd, unix.SIOCSIFMTU, request)
}
