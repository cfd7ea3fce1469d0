package sys_test

import (
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/sys"
)

func TestMmapAnonymous(t *testing.T) {
	const length = 4 << 20
	b, err := sys.MmapAnonymous(length, sys.PROT_READ|sys.PROT_WRITE, sys.MAP_PRIVATE)
	want(t, "mmap", len(b), err, length, nil)
	if err := sys.Madvise(b, sys.MADV_HUGEPAGE); err != nil && err != syscall.EINVAL { // not built in
		t.Errorf("madvise: %v", err)
	}
	b[0], b[length-1] = 1, 2
	want(t, "madvise of no page", 0, sys.Madvise(b[1:], sys.MADV_HUGEPAGE), 0, error(syscall.EINVAL))
	want(t, "munmap", 0, sys.Munmap(b), 0, nil)
	_, err = sys.MmapAnonymous(0, sys.PROT_READ, sys.MAP_PRIVATE)
	want(t, "mmap of nothing", 0, err, 0, error(syscall.EINVAL))
}
