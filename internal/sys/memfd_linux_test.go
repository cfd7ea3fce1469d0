package sys_test

import (
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/sys"
)

func TestMemfd(t *testing.T) {
	fd, err := sys.MemfdCreate("test", sys.MFD_CLOEXEC|sys.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	defer sys.Close(fd)
	const size = 8192
	want(t, "ftruncate", 0, sys.Ftruncate(fd, size), 0, nil)
	n, err := sys.FstatSize(fd)
	want(t, "size", n, err, size, nil)
	kind, err := sys.FstatfsType(fd)
	want(t, "file system", kind, err, sys.TMPFS_MAGIC, nil)

	b, err := sys.MmapShared(fd, size)
	want(t, "mmap", len(b), err, size, nil)
	c, err := sys.MmapShared(fd, size)
	want(t, "mmap", len(c), err, size, nil)
	if b[size-1] = 7; c[size-1] != 7 {
		t.Error("what is written to one mapping is not in the other")
	}

	want(t, "seal", 0, sys.AddSeals(fd, sys.F_SEAL_SHRINK|sys.F_SEAL_SEAL), 0, nil)
	seals, err := sys.GetSeals(fd)
	want(t, "seals", seals&sys.F_SEAL_SHRINK, err, sys.F_SEAL_SHRINK, nil)
	want(t, "shrink", 0, sys.Ftruncate(fd, 1), 0, error(syscall.EPERM))
	want(t, "one seal more", 0, sys.AddSeals(fd, sys.F_SEAL_GROW), 0, error(syscall.EPERM))
	want(t, "munmap", 0, sys.Munmap(b), 0, nil)
	want(t, "munmap", 0, sys.Munmap(c), 0, nil)

	r, w, err := sys.Pipe2(sys.O_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer sys.Close(r)
	defer sys.Close(w)
	_, err = sys.GetSeals(r)
	want(t, "seals of a pipe", 0, err, 0, error(syscall.EINVAL))
}
