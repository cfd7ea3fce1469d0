package write

import (
	"context"
	"encoding/binary"
	"net"
	"os"
	"runtime"
	"syscall"

	"github.com/penstock/penstock/bench/service"
	"github.com/penstock/penstock/internal/sys"
)

// countSize is the length of the sink's answer, in bytes.
const countSize = 8

// serveSink receives on every connection of the listener, which it owns, and throws the bytes
// away; at the end of the stream it sends their number.
func serveSink(ctx context.Context, l net.Listener) error {
	return service.Serve(ctx, l, func(ctx context.Context, c *net.TCPConn) {
		n, err := discard(ctx, c)
		if err != nil {
			return
		}
		_, _ = c.Write(binary.BigEndian.AppendUint64(nil, uint64(n)))
	})
}

// discard receives until the end of the stream and copies nothing (MSG_TRUNC, tcp(7)). It
// blocks in the kernel, on a thread of its own, and not in the runtime's poller: the less a
// sink does, the less it adds to the measurement. If it fails, or ctx ends, the connection is
// reset when it is closed: a sender that waits for room would not notice an end.
func discard(ctx context.Context, c *net.TCPConn) (received int64, err error) {
	f, err := c.File() // the same socket, by a descriptor of our own
	if err != nil {
		return 0, err
	}
	defer f.Close()
	fd := int(f.Fd()) // blocking from here on
	raw, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	defer context.AfterFunc(ctx, func() {
		_ = raw.Control(func(fd uintptr) { _ = sys.ShutdownBoth(int(fd)) })
	})()
	defer func() {
		if err != nil {
			_ = sys.AbortOnClose(fd)
		}
	}()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	room := make([]byte, 1<<20) // which nothing is written to
	for {
		n, err := sys.Recv(fd, room, sys.MSG_TRUNC)
		switch {
		case err == syscall.EINTR:
			continue
		case err != nil:
			return received, os.NewSyscallError("recvfrom", err)
		case n == 0:
			return received, context.Cause(ctx)
		}
		received += int64(n)
	}
}
