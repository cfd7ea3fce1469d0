package pipe

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"github.com/penstock/penstock/internal/feature"
	"github.com/penstock/penstock/internal/sys"
)

// Open makes a pipe of at least size bytes; 0 means DefaultSize. The caller owns
// it and closes it.
//
// The pipe may come out smaller than asked, without an error: the kernel makes pipes of 8 KiB, and refuses to
// enlarge them, when the user's quota (pipe-user-pages-soft, pipe(7)) is used up or size is above
// pipe-max-size. Look at Size.
//
// Errors: EMFILE and ENFILE (wrapped in an *os.SyscallError) when no descriptors are left, ENFILE also when the
// user's hard quota is used up; ErrNotSupported when a sandbox refuses pipes.
func Open(size int) (*Pipe, error) {
	if size == 0 {
		size = DefaultSize
	}
	if size < 0 {
		return nil, fmt.Errorf("penstock: pipe: open: a size of %d bytes: write 0 or more: %w", size, syscall.EINVAL)
	}
	r, w, err := sys.Pipe2(sys.O_CLOEXEC | sys.O_NONBLOCK)
	if err != nil {
		return nil, openError("pipe2", err)
	}
	p := &Pipe{r: r, w: w}
	if err := p.resize(size); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// resize reads the size, and changes it if another one is wanted. It is no error if the kernel refuses a larger
// one.
func (p *Pipe) resize(want int) (err error) {
	p.size, err = sys.PipeSize(p.w)
	if err != nil {
		return openError("fcntl F_GETPIPE_SZ", err)
	}
	if p.size == want {
		return nil
	}
	// The kernel takes 32 bits and refuses sizes above half of them (round_pipe_size).
	got, err := sys.SetPipeSize(p.w, int(min(int64(want), 1<<31)))
	switch err {
	case nil:
		p.size = got
		return nil
	case syscall.EPERM:
		return nil
	}
	return openError("fcntl F_SETPIPE_SZ", err)
}

// openError names the call. If a sandbox refuses pipe2 it answers ENOSYS or EPERM, which the kernel itself
// never does.
func openError(call string, err error) error {
	err = os.NewSyscallError(call, err)
	if errors.Is(err, syscall.ENOSYS) || errors.Is(err, syscall.EPERM) {
		return &feature.Error{Feature: "pipe", Err: err}
	}
	return err
}

// Fill moves up to max bytes from fd, a socket or a file at its own position, into the
// pipe, by one splice(2). fd still belongs to the caller. A socket must be
// non-blocking, as package net's sockets are; reading a file may wait for the disk.
// SPLICE_F_MOVE is left out because it does nothing (splice(2): "no-op since Linux
// 2.6.21"), SPLICE_F_MORE because it would hold back the tail of a message for 200 ms:
// it sets MSG_MORE.
//
// It returns the number of bytes moved, and the kernel's error, as a bare syscall.Errno and
// without allocating:
//
//   - 0 and nil: the end of the file or of the stream, or an urgent byte comes
//     next (tcp(7)); only recv(2) with MSG_PEEK distinguishes them.
//   - EAGAIN: the pipe was empty, so the source is empty: wait for it. (With an urgent byte next, splice also answers EAGAIN, even if data is queued behind it.)
//   - ErrNotEmpty: the pipe held bytes before the call, so either the source is empty or the pipe is full. Drain first.
//   - EINTR: nothing was moved, call again.
//   - EINVAL: this source cannot be spliced, or max is not positive. ENOSYS and
//     EPERM: a sandbox refuses splice.
//   - Anything else is an error of the source, such as ECONNRESET.
func (p *Pipe) Fill(fd, max int) (int, error) {
	if max <= 0 {
		return 0, syscall.EINVAL
	}
	n, err := sys.Splice(fd, nil, p.in(), nil, max, sys.SPLICE_F_NONBLOCK)
	return p.filled(n, err)
}

// FillSocket is Fill from a non-blocking TCP or unix stream socket, and from nothing else. It costs less,
// because it makes the call without Go's scheduler. (A splice from a FIFO may wait even with O_NONBLOCK, for
// the FIFO's lock: another process holds the lock while it waits in a splice of its own.) If somebody makes the
// socket blocking during the call, for example by [os.File.Fd] of a duplicate, no goroutine may go on until
// bytes come.
func (p *Pipe) FillSocket(fd, max int) (int, error) {
	if max <= 0 {
		return 0, syscall.EINVAL
	}
	n, err := sys.SpliceSocket(fd, p.in(), fd, max)
	return p.filled(n, err)
}

// filled counts the bytes that a splice into the pipe moved.
func (p *Pipe) filled(n int, err error) (int, error) {
	p.n += n
	if err == syscall.EAGAIN && p.n > 0 {
		return 0, ErrNotEmpty
	}
	return n, err
}

// Drain moves up to max bytes out of the pipe to fd, a socket or a file at its own
// position, by one splice(2). fd still belongs to the caller. A socket must be
// non-blocking; writing a file may wait for the disk.
//
// It returns the number of bytes moved, and the kernel's error, as a bare syscall.Errno and without allocating.
// An empty pipe gives 0 and nil without a system call, so EAGAIN always means that the destination is full.
// After an error the bytes that were not moved are still in the pipe, in order: Read returns them.
//
//   - EAGAIN: the destination takes nothing now: wait for it.
//   - EINTR: nothing was moved, call again.
//   - EINVAL: this destination cannot be spliced to; a file opened with O_APPEND
//     cannot (splice(2)). Also max not positive.
//   - Anything else is an error of the destination, such as EPIPE, ECONNRESET,
//     ENOSPC. With EPIPE the kernel also raises SIGPIPE, which the Go runtime
//     ignores for descriptors other than 1 and 2 unless the program asked for it.
func (p *Pipe) Drain(fd, max int) (int, error) {
	if max <= 0 {
		return 0, syscall.EINVAL
	}
	if p.n == 0 {
		return 0, nil
	}
	n, err := sys.Splice(p.r, nil, fd, nil, min(max, p.n), sys.SPLICE_F_NONBLOCK)
	p.n -= n
	return n, err
}

// DrainSocket is Drain to a non-blocking TCP or unix stream socket, and to nothing else. It costs less, like
// [Pipe.FillSocket].
func (p *Pipe) DrainSocket(fd, max int) (int, error) {
	if max <= 0 {
		return 0, syscall.EINVAL
	}
	if p.n == 0 {
		return 0, nil
	}
	n, err := sys.SpliceSocket(p.r, fd, fd, min(max, p.n))
	p.n -= n
	return n, err
}

// Tee copies up to max bytes from the beginning of the pipe to the end of another one, by one tee(2): the pages
// are shared, and the bytes stay in p too. Both pipes still belong to the caller.
//
// It returns the number of bytes copied, fewer than asked for when the slots of to are full. Calling Tee again
// before these bytes have left p copies them once more. EAGAIN means that to was full, or p empty; EINVAL that
// both are the same pipe, that to is nil, or that max is not positive; ENOSYS and EPERM that a sandbox refuses tee.
func (p *Pipe) Tee(to *Pipe, max int) (int, error) {
	if to == nil || max <= 0 {
		return 0, syscall.EINVAL
	}
	if p.n == 0 && p.in() < 0 {
		return 0, syscall.EBADF
	}
	n, err := sys.Tee(p.r, to.in(), max)
	to.n += n
	return n, err
}

// Write copies bytes into the pipe by one write(2). It returns how many the pipe took, fewer than all when it
// is full, and a bare syscall.Errno: EAGAIN when it took none.
func (p *Pipe) Write(b []byte) (int, error) {
	n, err := sys.Write(p.in(), b)
	p.n += max(n, 0)
	return max(n, 0), err
}

// Read takes bytes out of the pipe by one read(2), for a destination that does not take them by Drain. It
// returns io.EOF when the pipe is empty, and otherwise a bare syscall.Errno.
func (p *Pipe) Read(b []byte) (int, error) {
	if p.n == 0 {
		return 0, io.EOF
	}
	n, err := sys.Read(p.r, b)
	p.n -= n
	return n, err
}

// Close closes both ends and throws away the bytes inside. A second Close returns ErrClosed. Give a pipe from a
// Pool back with Put instead, whatever its state.
func (p *Pipe) Close() error {
	if p.r == p.w { // both -1, or both 0 in a Pipe that Open has not made
		return ErrClosed
	}
	err := sys.Close(p.r)
	if e := sys.Close(p.w); err == nil {
		err = e
	}
	p.r, p.w = -1, -1
	return os.NewSyscallError("close", err)
}
