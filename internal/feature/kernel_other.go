//go:build !linux

package feature

var (
	errHugePages            = &Error{Feature: "huge pages"}
	errTransparentHugePages = &Error{Feature: "transparent huge pages"}
	errIoUring              = &Error{Feature: "io_uring"}
	errBPF                  = &Error{Feature: "bpf"}
	errSockmap              = &Error{Feature: "sockmap"}
	errExecutableMemory     = &Error{Feature: "executable memory"}
)

// HugePages returns an error that matches ErrNotSupported.
func HugePages() error { return errHugePages }

// TransparentHugePages returns an error that matches ErrNotSupported.
func TransparentHugePages() error { return errTransparentHugePages }

// IoUring returns an error that matches ErrNotSupported.
func IoUring() error { return errIoUring }

// BPF returns an error that matches ErrNotSupported.
func BPF() error { return errBPF }

// Sockmap returns an error that matches ErrNotSupported.
func Sockmap() error { return errSockmap }

// ExecutableMemory returns an error that matches ErrNotSupported.
func ExecutableMemory() error { return errExecutableMemory }
