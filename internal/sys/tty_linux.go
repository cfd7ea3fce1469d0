package sys

import (
	"os"

	"golang.org/x/sys/unix"
)

// TerminalWidth returns the number of columns of the terminal behind fd, 0
// when the terminal does not know it. The error is ENOTTY for everything that
// is no terminal (ioctl_tty(2), TIOCGWINSZ).
func TerminalWidth(fd int) (int, error) {
	size, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ)
	if err != nil {
		return 0, os.NewSyscallError("ioctl TIOCGWINSZ", err)
	}
	return int(size.Col), nil
}
