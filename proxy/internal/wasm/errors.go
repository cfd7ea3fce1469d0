package wasm

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tetratelabs/wazero/sys"
)

// Why a call has ended without a result, or a module is not accepted: for errors.Is.
var (
	// ErrTrap: an instruction has no result, such as unreachable, a division by zero, or an address beyond the memory; or
	// the module called a function of the host with an argument that it does not accept.
	ErrTrap = errors.New("the module has trapped")
	// ErrTimeout: the deadline has passed.
	ErrTimeout = errors.New("the module ran longer than timeout")
	// ErrMemory: the module wants more linear memory than it may have.
	ErrMemory = errors.New("the module needs more memory than its limit")
	// ErrStack: the module's functions call each other too deeply.
	ErrStack = errors.New("the module's calls are nested too deeply")
	// ErrExit: the module has ended itself, by proc_exit of WASI.
	ErrExit = errors.New("the module ended itself")
	// ErrClosed: the instance is closed, or has failed before.
	ErrClosed = errors.New("the instance is closed")
	// ErrBusy: the largest number of instances is in use.
	ErrBusy = errors.New("all instances are in use")
	// ErrInvalid: the file is not a module of WebAssembly 2.0, or it exceeds a bound that cannot be configured.
	ErrInvalid = errors.New("not a valid module")
)

// An ImportError names a function, or something else, that a module imports and the host does not have.
type ImportError struct {
	Module, Name string
	// Reason says why the import is not accepted.
	Reason string
}

// Error implements error.
func (e *ImportError) Error() string {
	return fmt.Sprintf("the module imports %s.%s: %s", Printable(e.Module, maxText), Printable(e.Name, maxText), e.Reason)
}

// A MemoryError is [ErrMemory] of a module that needs more linear memory at its start than it may have.
type MemoryError struct {
	Least, Most int64 // bytes that it needs, and that it may have
}

// Error implements error.
func (e *MemoryError) Error() string {
	return fmt.Sprintf("%v: it needs %d KiB to start, and %d KiB are allowed", ErrMemory, e.Least>>10, e.Most>>10)
}

// Unwrap returns [ErrMemory].
func (e *MemoryError) Unwrap() error { return ErrMemory }

// maxText is the most bytes of a text from a module or from wazero that go into an error.
const maxText = 256

// Printable returns up to most bytes of a module's text in a form that can be logged: one line of visible
// characters.
func Printable(text string, most int) string {
	if len(text) > most {
		text = text[:most] + "…"
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return utf8.RuneError
		}
		return r
	}, text)
}

// failure turns an error of wazero into an error of this package.
func (i *Instance) failure(err error) error {
	var exit *sys.ExitError
	switch {
	case i.memory.refused:
		return fmt.Errorf("%w: %d KiB", ErrMemory, i.module.bounds.Memory>>10)
	case i.stackExhausted():
		return ErrStack
	case i.deadline.over.Load():
		return ErrTimeout
	case errors.As(err, &exit):
		return fmt.Errorf("%w: exit status %d", ErrExit, exit.ExitCode())
	}
	text, _, _ := strings.Cut(err.Error(), "\n")
	if strings.HasSuffix(text, "stack overflow") { // the interpreter's own bound
		return ErrStack
	}
	text = strings.TrimPrefix(strings.TrimSuffix(text, " (recovered by wazero)"), "wasm error: ")
	return fmt.Errorf("%w: %s", ErrTrap, Printable(text, maxText))
}
