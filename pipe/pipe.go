// Package pipe keeps kernel pipes, the buffers through which splice(2) moves bytes without copying them: a Pipe
// knows its real size and how many bytes it holds, and a Pool lends pipes under a budget counted in pages.
//
// On systems other than Linux every function is there and returns ErrNotSupported.
package pipe

import (
	"errors"

	"github.com/penstock/penstock/internal/closed"
	"github.com/penstock/penstock/internal/feature"
)

// DefaultSize is the default capacity of a pipe in bytes: the size of a new pipe
// (PIPE_DEF_BUFFERS pages of 4 KiB), and the smallest size that a Pool lends.
const DefaultSize = 64 << 10

// ErrNotSupported is wrapped by the error of every call that the operating system or a sandbox refuses for
// good: then copy the bytes instead. It wraps errors.ErrUnsupported.
var ErrNotSupported = feature.ErrNotSupported

// ErrClosed is returned by a closed Pool, and by a second Close. It matches os.ErrClosed.
var ErrClosed error = closed.Error("penstock: pipe: the pool is closed, or was not made by NewPool")

// ErrNotEmpty is returned by Fill when it moved nothing into a pipe that already holds bytes: either the source
// is empty or the pipe is full. Drain the pipe first. It never matches syscall.EAGAIN, so that nobody waits for
// the source by mistake while bytes are left in the pipe.
var ErrNotEmpty = errors.New("penstock: pipe: fill: nothing moved, and the pipe is not empty: drain it first")

// Pipe is one kernel pipe, both ends. It is not safe for concurrent use. It comes from a [Pool] or from [Open]:
// the zero Pipe is closed and empty: Fill and Write return EBADF.
//
// All bytes enter by Fill, Write, or Tee of another pipe, and leave by Drain or Read, so Len is exact.
type Pipe struct {
	// r and w are open descriptors from Open until Close; then they are -1.
	r, w int

	size int // capacity in bytes, as the kernel reported it
	n    int // bytes held

	lease // of its Pool
}

// in returns the descriptor where bytes go in. It is not 0 for the zero Pipe, because 0 may be another file.
func (p *Pipe) in() int {
	if p.r == p.w {
		return -1
	}
	return p.w
}

// Size returns the capacity in bytes that the kernel gave the pipe (F_GETPIPE_SZ). Fewer bytes may fit: the
// kernel counts slots, one for each piece of at most a page, so 16 pieces of 100 bytes fill a pipe of 64 KiB.
func (p *Pipe) Size() int { return p.size }

// Len returns how many bytes the pipe holds.
func (p *Pipe) Len() int { return p.n }
