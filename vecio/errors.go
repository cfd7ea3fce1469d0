package vecio

import (
	"errors"
	"fmt"
	"os"

	"github.com/penstock/penstock/internal/closed"
)

// Errors that callers compare with.
var (
	// ErrBlocked is returned by Flush of a writer that never waits: the kernel takes
	// nothing more now. Call it again when the descriptor is writable.
	ErrBlocked = errors.New("penstock: vecio: the descriptor takes no more now: flush again when it is writable")

	// ErrFull is returned for a piece by a writer that never waits, or to a socket of
	// datagrams, and has too much pending: more than Config.High bytes, or pieces of which
	// 65,536 differed in length from the one before, or 65,536 owned ones. The piece was not taken. It is
	// over once no more than Config.Low is pending.
	ErrFull = errors.New("penstock: vecio: too much is pending: flush first")

	// ErrClosed is returned after Close. It matches os.ErrClosed.
	ErrClosed error = closed.Error("penstock: vecio: the writer is closed")
)

// WriteError has the progress of a writer. All counts are since New or Reset.
type WriteError struct {
	Op      string // the operation that failed: sendmsg (to a socket), writev (to a file), write (a Write), or close
	Written int64  // bytes that are with the kernel (or that Write has taken)
	Piece   int64  // the first piece that is not fully written, from 0
	Offset  int64  // bytes of that piece which are written
	Pieces  int64  // pieces taken
	Err     error  // the cause
}

// Error implements error.
func (e *WriteError) Error() string {
	return fmt.Sprintf("penstock: vecio: %s: %v (%d bytes were written; it stopped at byte %d of piece %d of %d)",
		e.Op, e.Err, e.Written, e.Offset, e.Piece, e.Pieces)
}

// Unwrap returns the cause.
func (e *WriteError) Unwrap() error { return e.Err }

// Timeout reports whether a deadline has passed: the one kind of error after which the
// writer goes on where it was, when Flush is called again.
func (e *WriteError) Timeout() bool { return errors.Is(e.Err, os.ErrDeadlineExceeded) }

// errInvalidWrite: io.Writer does not allow it.
var errInvalidWrite = errors.New("an impossible count from Write")

// errUnsent is the cause of Close's error.
var errUnsent = errors.New("bytes were pending: flush first")
