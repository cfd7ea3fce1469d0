package sys

import "golang.org/x/sys/unix"

// DisableTHP makes the kernel give this process no transparent huge pages from now on,
// with prctl(2) and PR_SET_THP_DISABLE. Its children inherit it.
func DisableTHP() error { return unix.Prctl(unix.PR_SET_THP_DISABLE, 1, 0, 0, 0) }
