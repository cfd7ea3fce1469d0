package feature_test

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/feature"
	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/privilege"
)

func TestSandboxForbidsHugePages(t *testing.T) {
	for _, c := range []struct {
		name   string
		errno  syscall.Errno
		number uintptr
		probe  func() error
		answer bool
	}{
		{"madvise forbidden", syscall.EPERM, sys.SYS_MADVISE, feature.TransparentHugePages, true},
		{"huge pages not built in", syscall.EINVAL, sys.SYS_MADVISE, feature.TransparentHugePages, true},
		{"no memory for huge pages", syscall.ENOMEM, sys.SYS_MADVISE, feature.TransparentHugePages, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if !privilege.Refused(t, c.errno, c.number) {
				return
			}
			err := c.probe()
			if !errors.Is(err, c.errno) || errors.Is(err, feature.ErrNotSupported) != c.answer {
				t.Errorf("%v, want %v, conclusive: %v", err, c.errno, c.answer)
			}
		})
	}
}

// TestTransparentHugePagesFollowTheSetting: where they are switched off the probe
// says that there are none, without taking it for an answer for good.
func TestTransparentHugePagesFollowTheSetting(t *testing.T) {
	setting, err := os.ReadFile("/sys/kernel/mm/transparent_hugepage/enabled")
	if err != nil {
		t.Skipf("this kernel has none: %v", err)
	}
	err = feature.TransparentHugePages()
	t.Logf("%s%v", setting, err)
	switch {
	case strings.Contains(string(setting), "[never]") && err == nil:
		t.Error("huge pages although they are switched off")
	case errors.Is(err, feature.ErrNotSupported):
		t.Errorf("there is a setting, but %v", err)
	}
}

// TestHugePagesAreThoseSetAside: with none set aside there is none to have, and
// with a free one there is.
func TestHugePagesAreThoseSetAside(t *testing.T) {
	text, err := os.ReadFile("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages")
	if err != nil {
		t.Skipf("this kernel has no pages of 2 MiB: %v", err)
	}
	none := strings.TrimSpace(string(text)) == "0"
	if err := feature.HugePages(); none && !errors.Is(err, syscall.ENOMEM) {
		t.Skipf("%v: the kernel may make surplus pages", err)
	} else if !none && errors.Is(err, feature.ErrNotSupported) {
		t.Errorf("%s free, but %v", text, err)
	}
}

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
