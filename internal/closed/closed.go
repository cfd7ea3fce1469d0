// Package closed has the type of errors that say that something was closed before.
package closed

import "os"

// Error is the text of the error. It matches os.ErrClosed.
type Error string

// Error implements error.
func (e Error) Error() string { return string(e) }

// Is reports whether target is os.ErrClosed.
func (e Error) Is(target error) bool { return target == os.ErrClosed }
