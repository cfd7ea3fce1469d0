package sys

import "golang.org/x/sys/unix"

// RlimitNoFile returns the soft limit of RLIMIT_NOFILE (getrlimit(2)): the highest descriptor that this process
// can get, plus 1.
func RlimitNoFile() (uint64, error) {
	var l unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l)
	return l.Cur, err
}

// SetRlimitMemlock sets the soft limit of RLIMIT_MEMLOCK in bytes by prlimit(2), to at most the hard limit,
// which stays. The pages of MSG_ZEROCOPY count against it, unless the caller has CAP_IPC_LOCK
// (net/core/skbuff.c, mm_account_pinned_pages).
func SetRlimitMemlock(soft uint64) error {
	var l unix.Rlimit
	if err := unix.Prlimit(0, unix.RLIMIT_MEMLOCK, nil, &l); err != nil {
		return err
	}
	l.Cur = soft
	return unix.Prlimit(0, unix.RLIMIT_MEMLOCK, &l, nil)
}

// RlimitNoFileRange returns the soft and the hard limit of RLIMIT_NOFILE
// (getrlimit(2)).
func RlimitNoFileRange() (soft, hard uint64, err error) {
	var l unix.Rlimit
	err = unix.Prlimit(0, unix.RLIMIT_NOFILE, nil, &l)
	return l.Cur, l.Max, err
}

// SetRlimitNoFile sets both limits of this process by prlimit(2). EPERM: hard would rise without
// CAP_SYS_RESOURCE, or above fs.nr_open. The Go runtime does not notice, so children of the process inherit
// these limits.
func SetRlimitNoFile(soft, hard uint64) error {
	return unix.Prlimit(0, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: soft, Max: hard}, nil)
}
