//go:build !linux

package feature

var (
	errHugePages            = &Error{Feature: "huge pages"}
	errTransparentHugePages = &Error{Feature: "transparent huge pages"}
	errExecutableMemory     = &Error{Feature: "executable memory"}
)

// HugePages returns an error that matches ErrNotSupported.
func HugePages() error { return errHugePages }

// TransparentHugePages returns an error that matches ErrNotSupported.
func TransparentHugePages() error { return errTransparentHugePages }

// ExecutableMemory returns an error that matches ErrNotSupported.
func ExecutableMemory() error { return errExecutableMemory }
