package sys

import "golang.org/x/sys/unix"

// SetRlimitMemlock sets the soft limit of RLIMIT_MEMLOCK in bytes with prlimit(2), to no
// more than the hard one, which stays. The pages of MSG_ZEROCOPY count against it, unless
// the caller has CAP_IPC_LOCK (net/core/skbuff.c, mm_account_pinned_pages).
func SetRlimitMemlock(soft uint64) error {
	var l unix.Rlimit
	if err := unix.Prlimit(0, unix.RLIMIT_MEMLOCK, nil, &l); err != nil {
		return err
	}
	l.Cur = soft
	return unix.Prlimit(0, unix.RLIMIT_MEMLOCK, &l, nil)
}
