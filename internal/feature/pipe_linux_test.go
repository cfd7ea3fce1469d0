package feature_test

import (
	"errors"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/feature"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/privilege"
)

// TestHere: the kernels that the tests run on have both; a sandbox that lacks
// them is worth knowing of.
func TestHere(t *testing.T) {
	if err := feature.Splice(); err != nil {
		t.Errorf("splice: %v", err)
	}
	if err := feature.PipeResize(); err != nil {
		t.Errorf("pipe resize: %v", err)
	}
}

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
