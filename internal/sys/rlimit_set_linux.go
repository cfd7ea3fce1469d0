package sys

import "golang.org/x/sys/unix"

// RlimitNoFileRange returns the soft and the hard limit of RLIMIT_NOFILE
// (getrlimit(2)).
func RlimitNoFileRange() (soft, hard uint64, err error) {
	var l unix.Rlimit
	err = unix.Prlimit(0, unix.RLIMIT_NOFILE, nil, &l)
	return l.Cur, l.Max, err
}

// SetRlimitNoFile sets both limits of this process with prlimit(2). EPERM: hard
// would rise without CAP_SYS_RESOURCE, or above fs.nr_open. The Go runtime does
// not learn of it, so children of the process inherit what is set here.
func SetRlimitNoFile(soft, hard uint64) error {
	return unix.Prlimit(0, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: soft, Max: hard}, nil)
}
