package vecio

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/penstock/penstock/internal/closed"
)

// Config sets up a [Writer]. The zero value means the defaults.
type Config struct {
	// CopyBelow: a piece with fewer bytes is copied, a longer one goes by reference. 0
	// means DefaultCopyBelow, negative never to copy.
	CopyBelow int

	// High bounds the pending bytes. A piece that would exceed it waits until no more
	// than Low bytes are pending. A writer that never waits refuses pieces with ErrFull
	// until then. Only a piece that comes when nothing is pending may be longer. 0
	// means DefaultHigh. Low is 0 by default: everything is written.
	High, Low int

	// Policy is the effect of End.
	Policy Policy

	// Bound is how long an incomplete unit (Adaptive), or pieces that were not flushed
	// (Batch), may wait, see Writer.Due. 0 means DefaultBound for Adaptive and no bound for
	// Batch; Latency has none.
	Bound time.Duration

	// Now is a monotonic clock in nanoseconds, for Bound. Nil means the system's.
	Now func() int64
}

const (
	// DefaultCopyBelow is the size of a piece below which a copy in user space costs
	// less than an entry of the vector. docs/library.md has the measurement.
	DefaultCopyBelow = 2048

	// DefaultHigh is how many bytes may be pending.
	DefaultHigh = 1 << 20

	// maxRuns bounds the cost of empty and tiny pieces: it bounds how often the length of a
	// pending piece differs from the length of the piece before it, and the number of owned
	// pieces.
	maxRuns = 1 << 16
)

func (c Config) withDefaults() Config {
	if c.CopyBelow == 0 {
		c.CopyBelow = DefaultCopyBelow
	}
	if c.High == 0 {
		c.High = max(DefaultHigh, c.Low)
	}
	switch {
	case c.Policy == Latency:
		c.Bound = 0
	case c.Policy == Adaptive && c.Bound == 0:
		c.Bound = DefaultBound
	}
	if c.Now == nil {
		c.Now = monotonic
	}
	return c
}

func (c *Config) check() error {
	if c.High < 0 || c.Low < 0 || c.Low > c.High {
		return fmt.Errorf("penstock: vecio: watermarks %d and %d: give 0 <= Low <= High", c.Low, c.High)
	}
	return c.Policy.check(c.Bound)
}

// A Releaser gets back an owned piece: the very slice that [Writer.Own] was given, exactly
// once, when all of its bytes are written, or when the writer fails, is closed or reset,
// or when Own fails. *arena.Local implements it; [ReleaseFunc] makes a Releaser of a
// function.
//
// Release is called in the goroutine that calls the writer, during a Flush or Own: it must not use the
// writer, nor close or write to the writer's destination.
type Releaser interface{ Release(piece []byte) }

// ReleaseFunc makes a function a [Releaser]. A function literal that captures variables
// is allocated each time: make it once, not for each piece.
type ReleaseFunc func(piece []byte)

// Release calls f, unless it is nil.
func (f ReleaseFunc) Release(piece []byte) {
	if f != nil {
		f(piece)
	}
}

// Errors that callers compare with.
var (
	// ErrBlocked is returned by Flush of a writer that never waits: the kernel takes
	// nothing more now. Call it again when the descriptor is writable.
	ErrBlocked = errors.New("penstock: vecio: the descriptor accepts no more bytes now: flush again when it is writable")

	// ErrFull is returned for a piece by a writer that never waits, or writes to a socket of datagrams,
	// when too much is pending: more than Config.High bytes, 65,536 pieces that differ in length from
	// the piece before them, or 65,536 owned pieces. The piece was not taken. The writer takes pieces
	// again once no more than Config.Low bytes are pending.
	ErrFull = errors.New("penstock: vecio: too many bytes are pending: flush first")

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

// Timeout reports whether a deadline has passed. After such an error, unlike all
// others, the writer continues when Flush is called again.
func (e *WriteError) Timeout() bool { return errors.Is(e.Err, os.ErrDeadlineExceeded) }

// errInvalidWrite: io.Writer does not allow it.
var errInvalidWrite = errors.New("an impossible count from Write")

// errUnsent is the cause of Close's error.
var errUnsent = errors.New("bytes were pending: flush first")
