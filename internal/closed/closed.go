// Package closed has the type of the errors that say that something was closed before.
package closed

import (
	"net"
	"os"
)

// Error is the text of such an error. It matches os.ErrClosed and net.ErrClosed.
type Error string

// Error implements error.
func (e Error) Error() string { return string(e) }

// Is reports whether target is one of the errors by which the standard library says it.
func (e Error) Is(target error) bool { return target == os.ErrClosed || target == net.ErrClosed }
