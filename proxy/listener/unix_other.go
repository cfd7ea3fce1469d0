//go:build !linux

package listener

import (
	"context"
	"syscall"
)

// restrict does nothing: here the mode of a path follows its binding.
func (l *Listener) restrict(_, _ string, _ syscall.RawConn) error { return nil }

// lock locks nothing: two processes that take over the same path at the same time
// may both believe to have it.
func lock(context.Context, string) (unlock func() error, err error) {
	return func() error { return nil }, nil
}
