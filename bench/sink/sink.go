// Package sink is the server to which a benchmark's contestants forward. The
// first bytes of a connection are its request (package traffic):
//
//   - "bulk SEED": the content of that seed until the client half-closes, and
//     then a trailer;
//   - "once N": N bytes come back, beginning with the line, and then the sink
//     closes, before the client does;
//   - everything else comes back as it is.
//
// It is an epoll loop, because on a machine with few processors the cost of the
// sink hides the cost of the proxies. A small message is one receive and one
// send, without a receive that finds nothing. It sends by ordinary sends. Pages
// lent by sendfile would spare it the copy, but would reach the proxies in
// smaller fragments than other servers' bytes, and so change the measurement.
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

// Serve owns l, and serves it with the given number of threads until ctx is done. It then
// returns nil, and otherwise the error that ended it, such as running out of descriptors.
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

// take makes l's socket one of our own: a listener that stays with the runtime's poller wakes
// that for every connection. Accepted connections inherit TCP_NODELAY from it.
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
	listening int              // the sink's
	open      map[int]struct{} // the connections, owned
	buf       []byte
}

func newWorker(listening int) (*worker, error) {
	loop, err := reactor.New()
	if err != nil {
		return nil, err
	}
	w := &worker{loop, listening, make(map[int]struct{}), make([]byte, receiveSize)}
	// One thread is woken for one connection, not all of them.
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
