package sys

import "golang.org/x/sys/unix"

// Arguments of mmap(2) and madvise(2).
const (
	PROT_READ     = unix.PROT_READ
	PROT_WRITE    = unix.PROT_WRITE
	MAP_PRIVATE   = unix.MAP_PRIVATE
	MAP_ANONYMOUS = unix.MAP_ANONYMOUS
	MAP_HUGETLB   = unix.MAP_HUGETLB
	MAP_HUGE_2MB  = unix.MAP_HUGE_2MB

	MADV_HUGEPAGE = unix.MADV_HUGEPAGE

	// MADV_POPULATE_WRITE gives the pages now, and an error instead of the SIGBUS
	// that touching one raises when there is none to give (Linux 5.14).
	MADV_POPULATE_WRITE = unix.MADV_POPULATE_WRITE
)

// MmapAnonymous maps memory that belongs to no file with mmap(2); MAP_ANONYMOUS is
// added to the flags. The caller unmaps it with Munmap.
func MmapAnonymous(length, prot, flags int) ([]byte, error) {
	return unix.Mmap(-1, 0, length, prot, flags|MAP_ANONYMOUS)
}

// Munmap takes back the whole of what MmapAnonymous returned.
func Munmap(b []byte) error { return unix.Munmap(b) }

// Madvise gives an advice about whole pages with madvise(2).
func Madvise(b []byte, advice int) error { return unix.Madvise(b, advice) }
