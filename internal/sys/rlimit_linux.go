package sys

import "golang.org/x/sys/unix"

// RlimitNoFile returns the soft limit of RLIMIT_NOFILE (getrlimit(2)): one more
// than the highest descriptor that this process can get.
func RlimitNoFile() (uint64, error) {
	var l unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l)
	return l.Cur, err
}
