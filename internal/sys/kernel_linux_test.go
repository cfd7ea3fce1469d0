package sys_test

import (
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/privilege"
)

func TestIoUringSetup(t *testing.T) {
	fd, err := sys.IoUringSetup(2, &sys.IoUringParams{})
	if err == syscall.EPERM || err == syscall.ENOSYS {
		t.Skipf("refused here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	want(t, "close", 0, sys.Close(fd), 0, nil)
	_, err = sys.IoUringSetup(0, &sys.IoUringParams{})
	want(t, "no entries", 0, err, 0, error(syscall.EINVAL))
}

// TestRefusedNumbers: each number is that of its call.
func TestRefusedNumbers(t *testing.T) {
	if !privilege.Refused(t, syscall.EXDEV, sys.SYS_IO_URING_SETUP, sys.SYS_MADVISE, sys.SYS_MEMBARRIER, sys.SYS_SETSOCKOPT) {
		return
	}
	_, uring := sys.IoUringSetup(2, &sys.IoUringParams{})
	for name, err := range map[string]error{
		"io_uring_setup": uring, "madvise": sys.Madvise(make([]byte, 1), sys.MADV_HUGEPAGE),
		"membarrier": sys.RegisterMembarrier(), "setsockopt": sys.SetsockoptInt(0, sys.SOL_SOCKET, sys.SO_KEEPALIVE, 1),
	} {
		if err != syscall.EXDEV {
			t.Errorf("%s: %v, want EXDEV", name, err)
		}
	}
}
