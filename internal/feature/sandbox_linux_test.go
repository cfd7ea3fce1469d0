package feature_test

import (
	"errors"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/feature"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/privilege"
)

func TestSandbox(t *testing.T) {
	for _, c := range []struct {
		name   string
		errno  syscall.Errno
		number uintptr
		probe  func() error
		want   error
	}{
		{"splice unknown", syscall.ENOSYS, sys.SYS_SPLICE, feature.Splice, feature.ErrNotSupported},
		{"splice forbidden", syscall.EPERM, sys.SYS_SPLICE, feature.Splice, feature.ErrNotSupported},
		{"splice interrupted", syscall.EINTR, sys.SYS_SPLICE, feature.Splice, syscall.EINTR},
		{"no pipes", syscall.EPERM, sys.SYS_PIPE2, feature.Splice, feature.ErrNotSupported},
		{"no descriptors", syscall.EMFILE, sys.SYS_PIPE2, feature.Splice, syscall.EMFILE},
		{"fcntl forbidden", syscall.EPERM, sys.SYS_FCNTL, feature.PipeResize, feature.ErrNotSupported},
		{"no memory", syscall.ENOMEM, sys.SYS_PIPE2, feature.PipeResize, syscall.ENOMEM},
		{"madvise forbidden", syscall.EPERM, sys.SYS_MADVISE, feature.TransparentHugePages, feature.ErrNotSupported},
		{"huge pages not built in", syscall.EINVAL, sys.SYS_MADVISE, feature.TransparentHugePages, feature.ErrNotSupported},
		{"no memory for huge pages", syscall.ENOMEM, sys.SYS_MADVISE, feature.TransparentHugePages, syscall.ENOMEM},
	} {
		t.Run(c.name, func(t *testing.T) {
			if !privilege.Refused(t, c.errno, c.number) {
				return
			}
			err := c.probe()
			if !errors.Is(err, c.want) || !errors.Is(err, c.errno) {
				t.Errorf("%v, want %v because of %v", err, c.want, c.errno)
			}
			if c.want == error(c.errno) && errors.Is(err, feature.ErrNotSupported) {
				t.Errorf("%v: passes for an answer", err)
			}
		})
	}
}

// TestExecutableMemory: where memory that was written may not be made executable the probe says so, for good.
func TestExecutableMemory(t *testing.T) {
	if !privilege.NoNewCode(t) {
		return
	}
	err := feature.ExecutableMemory()
	if !errors.Is(err, syscall.EACCES) || !errors.Is(err, feature.ErrNotSupported) {
		t.Errorf("%v", err)
	}
}
