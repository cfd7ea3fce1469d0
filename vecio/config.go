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
	// CopyBelow: a shorter piece is copied, any other is sent by reference. 0 means DefaultCopyBelow, negative
	// means never to copy.
	CopyBelow int

	// High bounds the pending bytes. A piece that would exceed it waits until at most Low bytes are pending; a
	// writer that never waits refuses pieces with ErrFull until then. A piece that comes when nothing is pending
	// may be longer than High. The default of High is DefaultHigh, the default of Low 0.
	High, Low int

	// Policy says what End does.
	Policy Policy

	// Bound is how long an incomplete unit (Adaptive) or unflushed pieces (Batch) may wait, see Writer.Due. 0
	// means DefaultBound for Adaptive and no bound for Batch; Latency has none.
	Bound time.Duration

	// Now is a monotonic clock in nanoseconds, for Bound. Nil means the system's clock.
	Now func() int64
}

const (
	// DefaultCopyBelow is the length below which copying a piece costs no more, within the noise, than an entry of
	// the vector. docs/library.md has the measurement.
	DefaultCopyBelow = 2048

	// DefaultHigh is how many bytes may be pending.
	DefaultHigh = 1 << 20

	// maxRuns bounds what empty and tiny pieces cost: the number of owned pieces, and of pieces that differ in
	// length from the one before.
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
		return fmt.Errorf("penstock: vecio: Low is %d and High is %d: use 0 <= Low <= High", c.Low, c.High)
	}
	return c.Policy.check(c.Bound)
}

// A Releaser gets back an owned piece: the very slice that was passed to [Writer.Own], exactly once, when all
// of its bytes are written, when the writer fails, is closed or reset, or when Own fails. *arena.Local
// implements it; [ReleaseFunc] makes a Releaser of a function.
//
// Release is called on the goroutine that calls the writer, during a Flush or Own: it must not use the writer,
// nor close or write to the writer's destination.
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
	// ErrBlocked is returned by Flush of a writer that never waits when the kernel takes nothing more now. Call
	// Flush again when the descriptor is writable.
	ErrBlocked = errors.New("penstock: vecio: the descriptor accepts no more bytes now: flush again when it is writable")

	// ErrFull is returned for a piece by a writer that never waits, or writes to a socket of datagrams, when
	// too much is pending: more than Config.High bytes, 65,536 pieces that differ in length from the piece
	// before them, or 65,536 owned pieces. The piece was not taken. The writer takes pieces again once at most
	// Config.Low bytes are pending.
	ErrFull = errors.New("penstock: vecio: too many bytes are pending: flush first")

	// ErrClosed is returned after Close. It matches os.ErrClosed.
	ErrClosed error = closed.Error("penstock: vecio: the writer is closed")
)

// WriteError is an error with the progress of a writer. All counts are since New or Reset.
type WriteError struct {
	Op      string // the failed operation: sendmsg (to a socket), writev (to a file), write (a Write), or close
	Written int64  // bytes that the kernel (or Write) has taken
	Piece   int64  // the first piece that is not fully written, from 0
	Offset  int64  // how many bytes of that piece are written
	Pieces  int64  // pieces taken
	Err     error  // the cause
}

// Error describes the failure and the progress.
func (e *WriteError) Error() string {
	return fmt.Sprintf("penstock: vecio: %s: %v (%d bytes were written; it stopped at byte %d of piece %d of %d)",
		e.Op, e.Err, e.Written, e.Offset, e.Piece, e.Pieces)
}

// Unwrap returns the cause.
func (e *WriteError) Unwrap() error { return e.Err }

// Timeout reports whether a deadline has passed. After such an error alone the next Flush goes on.
func (e *WriteError) Timeout() bool { return errors.Is(e.Err, os.ErrDeadlineExceeded) }

// errInvalidWrite says that a Write breaks the contract of io.Writer.
var errInvalidWrite = errors.New("a Write returned an impossible count")

// errUnsent is the cause of Close's error when bytes are pending.
var errUnsent = errors.New("bytes were pending: flush first")
