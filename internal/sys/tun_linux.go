package sys

import "golang.org/x/sys/unix"

// OpenTUN makes a TUN device in the calling thread's network namespace, and returns its non-blocking
// descriptor, which the caller owns. A read takes one IP packet that was routed to the device; a packet that is
// written comes from the device. The device ends with the descriptor. EPERM: CAP_NET_ADMIN is missing in the
// namespace; ENOENT, ENODEV: this kernel has no TUN; EINVAL: the name is too long.
func OpenTUN(name string) (int, error) {
	request, err := unix.NewIfreq(name)
	if err != nil {
		return -1, unix.EINVAL
	}
	request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return -1, err
	}
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}
