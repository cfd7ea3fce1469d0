package feature

import (
	"os"
	"syscall"

	"github.com/penstock/penstock/internal/sys"
)

var (
	splice     = Probe{Do: trySplice}
	pipeResize = Probe{Do: tryPipeResize}
)

// Splice reports whether this process may make pipes, and splice(2) from a socket into a pipe and out again.
// See Probe.Supported for the errors.
func Splice() error { return splice.Supported() }

// PipeResize reports whether this process may read and set the size of a pipe. An exhausted quota for larger
// pipes is no refusal.
func PipeResize() error { return pipeResize.Supported() }

func trySplice() error {
	r, w, err := sys.Pipe2(sys.O_CLOEXEC | sys.O_NONBLOCK)
	if err != nil {
		return judge("splice", "pipe2", err)
	}
	defer sys.Close(r)
	defer sys.Close(w)
	a, b, err := sys.SocketPair()
	if err != nil {
		return judge("splice", "socketpair", err)
	}
	defer sys.Close(a)
	defer sys.Close(b)
	if _, err := sys.Send(a, []byte{1}, sys.MSG_NOSIGNAL|sys.MSG_DONTWAIT); err != nil {
		return judge("splice", "sendto", err)
	}
	if _, err := sys.Splice(b, nil, w, nil, 1, sys.SPLICE_F_NONBLOCK); err != nil {
		return judge("splice", "splice", err)
	}
	if _, err := sys.Splice(r, nil, b, nil, 1, sys.SPLICE_F_NONBLOCK); err != nil {
		return judge("splice", "splice", err)
	}
	return nil
}

func tryPipeResize() error {
	r, w, err := sys.Pipe2(sys.O_CLOEXEC | sys.O_NONBLOCK)
	if err != nil {
		return judge("pipe resize", "pipe2", err)
	}
	defer sys.Close(r)
	defer sys.Close(w)
	size, err := sys.PipeSize(w)
	if err != nil {
		return judge("pipe resize", "fcntl F_GETPIPE_SZ", err)
	}
	// Shrinking is always allowed, whatever the quota (fs/pipe.c, pipe_set_size).
	if _, err := sys.SetPipeSize(w, size/2); err != nil {
		return judge("pipe resize", "fcntl F_SETPIPE_SZ", err)
	}
	return nil
}

// judge names the call, and decides whether its error is conclusive: EPERM, EACCES (a sandbox), ENOSYS (a
// sandbox or a kernel without the call), EINVAL and EOPNOTSUPP (a kernel with the call, but not for this) are.
// Any other error, such as EMFILE, ENFILE, ENOMEM or EINTR, may differ next time.
func judge(feature, call string, err error) error {
	cause := os.NewSyscallError(call, err)
	switch err {
	case syscall.EPERM, syscall.EACCES, syscall.ENOSYS, syscall.EINVAL, syscall.EOPNOTSUPP:
		return &Error{Feature: feature, Err: cause}
	}
	return cause
}
