package sys

import "golang.org/x/sys/unix"

// Flags of memfd_create(2), and seals of fcntl(2) F_ADD_SEALS.
const (
	MFD_CLOEXEC       = unix.MFD_CLOEXEC
	MFD_ALLOW_SEALING = unix.MFD_ALLOW_SEALING
	MFD_NOEXEC_SEAL   = unix.MFD_NOEXEC_SEAL // Linux 6.3; EINVAL before
	MFD_HUGETLB       = unix.MFD_HUGETLB

	F_SEAL_SEAL   = unix.F_SEAL_SEAL
	F_SEAL_SHRINK = unix.F_SEAL_SHRINK
	F_SEAL_GROW   = unix.F_SEAL_GROW
)

// TMPFS_MAGIC is the file system of a memfd of ordinary pages (statfs(2)).
const TMPFS_MAGIC = unix.TMPFS_MAGIC

// MemfdCreate makes a file of length 0 that lives in memory, with
// memfd_create(2). The caller owns the descriptor.
func MemfdCreate(name string, flags int) (int, error) { return unix.MemfdCreate(name, flags) }

// Ftruncate sets a file's length with ftruncate(2). EPERM: a seal forbids it.
func Ftruncate(fd int, length int64) error { return unix.Ftruncate(fd, length) }

// AddSeals adds to a memfd's seals with fcntl(2) F_ADD_SEALS.
func AddSeals(fd, seals int) error {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	return err
}

// GetSeals reads a memfd's seals with fcntl(2) F_GET_SEALS. EINVAL: this file
// cannot be sealed.
func GetSeals(fd int) (int, error) { return unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0) }

// FstatSize returns st_size of fstat(2).
func FstatSize(fd int) (int64, error) {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	return st.Size, err
}

// FstatfsType returns f_type of fstatfs(2): compare it with TMPFS_MAGIC.
func FstatfsType(fd int) (int64, error) {
	var st unix.Statfs_t
	err := unix.Fstatfs(fd, &st)
	return int64(st.Type), err
}

// MmapShared maps the first length bytes of a file, for reading and writing, so
// that others who map it see what is written (mmap(2), MAP_SHARED). The mapping
// outlives the descriptor; the caller unmaps it with Munmap.
func MmapShared(fd, length int) ([]byte, error) {
	return unix.Mmap(fd, 0, length, PROT_READ|PROT_WRITE, unix.MAP_SHARED)
}
