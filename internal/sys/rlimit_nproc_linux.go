package sys

import "golang.org/x/sys/unix"

// RLIM_INFINITY is the value of no limit (getrlimit(2)).
const RLIM_INFINITY = uint64(1<<64 - 1)

// RlimitNProc returns the soft and the hard limit of RLIMIT_NPROC: how many
// threads the processes of this user may have together. It binds neither uid 0
// nor who has CAP_SYS_RESOURCE or CAP_SYS_ADMIN (getrlimit(2), kernel/fork.c).
func RlimitNProc() (soft, hard uint64, err error) {
	var l unix.Rlimit
	err = unix.Prlimit(0, unix.RLIMIT_NPROC, nil, &l)
	return l.Cur, l.Max, err
}

// SetRlimitNProc sets both limits of this process with prlimit(2).
func SetRlimitNProc(soft, hard uint64) error {
	return unix.Prlimit(0, unix.RLIMIT_NPROC, &unix.Rlimit{Cur: soft, Max: hard}, nil)
}
