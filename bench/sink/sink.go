// Package sink is the server to which a benchmark's contestants forward. The first bytes of a connection are its
// request (package traffic):
//
//   - "bulk SEED": the sink sends the content of that seed until the client half-closes, and then a trailer.
//   - "once N": the sink sends N bytes back, beginning with the line. Then it closes, before the client does.
//   - Anything else: the sink sends all bytes back.
//
// The sink is an epoll loop, because on a machine with few processors the cost of the sink hides the cost of the
// proxies. A small message takes one receive and one send, without a receive that finds nothing. The sink uses
// ordinary sends. With sendfile, it would save a copy. But then the bytes would reach the proxies in smaller
// fragments than from other servers, which would change the measurement.
package sink

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"

	"github.com/penstock/penstock/bench/reactor"
	"github.com/penstock/penstock/internal/sys"
)

// Serve serves l with this number of threads until ctx is done, and then returns nil. It owns l. If an error ends
// it, such as a lack of descriptors, it returns the error.
func Serve(ctx context.Context, l *net.TCPListener, threads int) error {
	listening, err := take(l)
	if err != nil {
		return fmt.Errorf("sink: %w", err)
	}
	defer sys.Close(listening)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	for range max(threads, 1) {
		w, err := newWorker(listening)
		if err != nil {
			cancel(fmt.Errorf("sink: %w", err))
			break
		}
		all.Go(func() { cancel(w.run(ctx)) })
	}
	all.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// take makes a separate socket from l. If the listener stayed with the runtime's poller, every connection would
// wake the poller. Accepted connections inherit TCP_NODELAY from the socket.
func take(l *net.TCPListener) (fd int, err error) {
	defer l.Close()
	raw, err := l.SyscallConn()
	if err != nil {
		return -1, err
	}
	if e := raw.Control(func(u uintptr) { fd, err = sys.Dup(int(u)) }); e != nil {
		return -1, e
	}
	if err != nil {
		return -1, os.NewSyscallError("fcntl", err)
	}
	if err := sys.SetsockoptInt(fd, sys.IPPROTO_TCP, sys.TCP_NODELAY, 1); err != nil {
		_ = sys.Close(fd)
		return -1, os.NewSyscallError("setsockopt", err)
	}
	return fd, nil
}

// worker is one thread of a sink.
type worker struct {
	loop      *reactor.Loop
	listening int              // the listening socket of the sink
	open      map[int]struct{} // the connections, owned
	buf       []byte
}

func newWorker(listening int) (*worker, error) {
	loop, err := reactor.New()
	if err != nil {
		return nil, err
	}
	w := &worker{loop, listening, make(map[int]struct{}), make([]byte, receiveSize)}
	// With EPOLLEXCLUSIVE, a connection wakes only one thread.
	if err := loop.Add(listening, sys.EPOLLIN|sys.EPOLLEXCLUSIVE, (*acceptor)(w)); err != nil {
		loop.Close()
		return nil, err
	}
	return w, nil
}

// run serves, and then closes the connections that are still open.
func (w *worker) run(ctx context.Context) error {
	defer w.loop.Close()
	err := w.loop.Run(ctx)
	for fd := range w.open {
		_ = sys.Close(fd)
	}
	return err
}
