// Package feature finds out what this process may do by doing it: the kernel's
// version says nothing about a sandbox, a backport or a build without a
// subsystem.
//
// An answer is kept for the life of the process once it is conclusive. One that
// may be different next time (no descriptors or memory left, an interrupted
// call) is reported but not kept.
package feature

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// ErrNotSupported is matched, by errors.Is, by every error that says that the
// kernel, the sandbox or the operating system refuses a feature for good. It
// wraps errors.ErrUnsupported.
var ErrNotSupported = fmt.Errorf("not supported here: %w", errors.ErrUnsupported)

// Error names the refused feature, and wraps the error of the kernel.
type Error struct {
	Feature string // such as "splice"
	Err     error  // the cause; may be nil
}

// Error implements error.
func (e *Error) Error() string {
	if e.Err == nil {
		return "penstock: " + e.Feature + ": " + ErrNotSupported.Error()
	}
	return "penstock: " + e.Feature + ": " + ErrNotSupported.Error() + ": " + e.Err.Error()
}

// Is matches ErrNotSupported and the errors that it wraps.
func (e *Error) Is(target error) bool {
	return target == ErrNotSupported || target == errors.ErrUnsupported
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Probe is a question with a memory. The zero value asks nothing; set Do. It is
// safe for concurrent use.
type Probe struct {
	// Do tries the feature and undoes it. An error that matches ErrNotSupported, and no error,
	// are conclusive; any other is not.
	Do func() error

	mu     sync.Mutex
	answer atomic.Pointer[answer]
}

type answer struct{ err error }

// Supported returns nil if the feature works, an error that matches ErrNotSupported if it is
// refused, and another if the result is not conclusive. It costs one atomic load, and
// allocates nothing, once the answer is known.
func (p *Probe) Supported() error {
	if a := p.answer.Load(); a != nil {
		return a.err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if a := p.answer.Load(); a != nil {
		return a.err
	}
	err := p.Do()
	if err == nil || errors.Is(err, ErrNotSupported) {
		p.answer.Store(&answer{err})
	}
	return err
}
