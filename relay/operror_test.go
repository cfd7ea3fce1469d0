package relay

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
)

// escaped has its values made on the heap.
var escaped *opError

// TestOpError: a failure at a connection is an error of package net, and costs one allocation and no
// text until that is asked for.
func TestOpError(t *testing.T) {
	err := error(newOpError("read", "tcp", syscall.ECONNRESET))
	if got, want := err.Error(), "penstock: relay: read tcp: read: connection reset by peer"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	var op *net.OpError
	var sys *os.SyscallError
	if !errors.As(err, &op) || op.Net != "tcp" || !errors.As(err, &sys) || sys.Syscall != "read" || !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%#v", err)
	}
	for cause, want := range map[error]bool{syscall.ECONNRESET: false, syscall.ETIMEDOUT: true, context.DeadlineExceeded: true} {
		var e net.Error
		if err := newOpError("write", "tcp", cause); !errors.As(error(err), &e) || e.Timeout() != want {
			t.Errorf("%v: not a net.Error whose Timeout is %v", err, want)
		}
	}
	if n := testing.AllocsPerRun(100, func() { escaped = newOpError("read", "tcp", syscall.ECONNRESET) }); n > 1 {
		t.Errorf("%v allocations", n)
	}
}
