package sys

import "golang.org/x/sys/unix"

// WaitExited waits for the end of a child of this process and leaves it
// unreaped (waitid(2), WEXITED|WNOWAIT): its id stays its own until somebody
// waits for it.
func WaitExited(pid int) error {
	return unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
}
