//go:build !linux

package feature

var (
	errSplice     = &Error{Feature: "splice"}
	errPipeResize = &Error{Feature: "pipe resize"}
)

// Splice returns an error that matches ErrNotSupported.
func Splice() error { return errSplice }

// PipeResize returns an error that matches ErrNotSupported.
func PipeResize() error { return errPipeResize }
