// Package feature finds out what this process may do by trying it: the kernel's version says nothing about a
// sandbox, a backport or a kernel built without a subsystem.
//
// A conclusive answer is kept for the life of the process. An answer that may differ next time (no descriptors
// or memory left, an interrupted call) is returned but not kept.
package feature

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// ErrNotSupported is matched, by errors.Is, by every error that says that the kernel, a sandbox or the
// operating system refuses a feature for good. It wraps errors.ErrUnsupported.
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

// Probe is a question that remembers its answer. Set Do: the zero value asks nothing. It is safe for concurrent
// use.
type Probe struct {
	// Do tries the feature and undoes it. Success, or an error that matches ErrNotSupported, is conclusive; any
	// other error is not.
	Do func() error

	mu     sync.Mutex
	answer atomic.Pointer[answer]
}

type answer struct{ err error }

// Supported returns nil if the feature works, an error that matches ErrNotSupported if it is refused, and
// another error if the result is not conclusive. Once the answer is known, it costs one atomic load and no
// allocation.
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
