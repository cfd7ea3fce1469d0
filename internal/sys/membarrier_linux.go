package sys

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// Commands of membarrier(2), include/uapi/linux/membarrier.h.
const (
	membarrierPrivateExpedited         = 1 << 3
	membarrierRegisterPrivateExpedited = 1 << 4
)

// RegisterMembarrier allows the process to use Membarrier
// (MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, Linux 4.14). It lasts until execve.
func RegisterMembarrier() error {
	_, _, e := syscall.Syscall(unix.SYS_MEMBARRIER, membarrierRegisterPrivateExpedited, 0, 0)
	return errnoErr(e)
}

// Membarrier makes all threads of the process pass a full memory barrier before
// it returns (MEMBARRIER_CMD_PRIVATE_EXPEDITED). It takes about as long as an
// interrupt on each core that runs one of them and sleeps for nothing, so it goes
// through RawSyscall.
func Membarrier() error {
	_, _, e := syscall.RawSyscall(unix.SYS_MEMBARRIER, membarrierPrivateExpedited, 0, 0)
	return errnoErr(e)
}
