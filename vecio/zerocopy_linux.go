package vecio

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/penstock/penstock/internal/sys"
)

// openZeroCopy asks for MSG_ZEROCOPY on a descriptor, or notes in the statistics why it is not
// available. before is the account of the descriptor that the writer had: if it is the same
// socket, the kernel goes on counting.
func openZeroCopy(out outlet, before *zeroCopy) *zeroCopy {
	b, ok := out.(*borrowed)
	if !ok {
		return &zeroCopy{stats: ZeroCopyStats{State: ZeroCopyPath}}
	}
	cookie, err := sys.SocketCookie(b.fd)
	if err != nil || !b.stream {
		return &zeroCopy{stats: ZeroCopyStats{State: ZeroCopyRefused}}
	}
	if err := sys.SetsockoptInt(b.fd, sys.SOL_SOCKET, sys.SO_ZEROCOPY, 1); err != nil {
		return &zeroCopy{stats: ZeroCopyStats{State: ZeroCopyRefused}}
	}
	z := &zeroCopy{socket: cookie, stats: ZeroCopyStats{State: ZeroCopyOn}}
	if before != nil && before.socket == cookie {
		z.sends, z.stats.State = before.sends, before.stats.State
	}
	return z
}

// Reap takes the notices of MSG_ZEROCOPY from the descriptor's error queue, gives back the
// pieces that it is done with, and returns how many are still held. It never waits. Call it on
// EPOLLERR of epoll (loop.Failed): with notices in the queue that is raised though SO_ERROR is
// 0, and stays raised until Reap has emptied it. After Close, Abort and a failure call it
// until it returns 0, before the descriptor is closed: there are no notices of a closed one,
// though the kernel may still send from the pieces. Without ZeroCopy it returns 0.
//
// The error is that of recvmsg(2), or that notices are of calls of another writer, because
// another one has used MSG_ZEROCOPY on the socket; then the held pieces are never given back.
func (w *Writer) Reap() (int, error) {
	b, ok := w.out.(*borrowed)
	if w.zero == nil || !ok {
		return 0, nil
	}
	for {
		n, err := sys.RecvZerocopyNotice(b.fd)
		switch err {
		case nil:
			w.zero.noticed(n.Lo, n.Hi, n.Copied)
			w.giveBack()
		case syscall.EAGAIN:
			return w.Held(), w.lost()
		case syscall.EBADMSG:
			w.zero.stats.Foreign++
		default:
			return w.Held(), fmt.Errorf("penstock: vecio: notices of zero-copy: %w", os.NewSyscallError("recvmsg", err))
		}
	}
}

var errLost = errors.New("penstock: vecio: a notice of zero-copy calls that are none of this writer's: leave MSG_ZEROCOPY on a socket to one writer")

func (w *Writer) lost() error {
	if w.zero.stats.State == ZeroCopyLost && w.Held() > 0 {
		return errLost
	}
	return nil
}

// Abort is for a writer of NewSocket that is to end while its peer acknowledges nothing: it
// resets the connection, by connect(2) to AF_UNSPEC, so that the kernel drops the unsent bytes
// and sends notices of all that it holds. Pending pieces are given back, the writer is closed,
// and held pieces are as a rule given back at once; Reap gives back those that the network
// device still has. The descriptor stays open, and its owner's, but is no connection any more.
// On other writers, and for sockets other than TCP's, it fails.
func (w *Writer) Abort() error {
	b, ok := w.out.(*borrowed)
	if !ok || !w.cork.tcp {
		return fmt.Errorf("penstock: vecio: abort: not a writer of NewSocket to TCP: %w", errors.ErrUnsupported)
	}
	if err := sys.Disconnect(b.fd); err != nil {
		return fmt.Errorf("penstock: vecio: abort: %w", os.NewSyscallError("connect", err))
	}
	w.abandon()
	w.pace = pace{}
	w.err = ErrClosed
	_, err := w.Reap()
	return err
}

// openOptions makes the writer ready for its policy.
func (w *Writer) openOptions(before *zeroCopy) error {
	var err error
	switch out := w.out.(type) {
	case *conn:
		err = w.cork.open(-1, out.raw)
	case *borrowed:
		err = w.cork.open(out.fd, nil)
	}
	if err == nil && w.config.ZeroCopy > 0 {
		w.zero = openZeroCopy(w.out, before)
	}
	return err
}
