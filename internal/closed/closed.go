// Package closed has the type of the errors that say that something was closed before.
package closed

import "os"

// Error is the text of such an error. It matches os.ErrClosed.
type Error string

// Error implements error.
func (e Error) Error() string { return string(e) }

// Is reports whether target is the standard library's.
func (e Error) Is(target error) bool { return target == os.ErrClosed }
