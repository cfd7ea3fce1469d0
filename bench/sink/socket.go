package sink

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/penstock/penstock/bench/traffic"
	"github.com/penstock/penstock/internal/sys"
)

const (
	// receiveSize is how much is received at once, in bytes.
	receiveSize = 256 << 10

	readable = sys.EPOLLIN | sys.EPOLLRDHUP
	flags    = sys.MSG_DONTWAIT | sys.MSG_NOSIGNAL
)

// acceptor is the listening socket of a worker.
type acceptor worker

func (a *acceptor) Ready(uint32) {
	// Accept one connection for each event. The next connection is reported again, together with others. An accept
	// that finds no connection would cost more than that.
	w := (*worker)(a)
	fd, err := sys.Accept4(w.listening, sys.SOCK_NONBLOCK|sys.SOCK_CLOEXEC)
	switch {
	case err == nil:
		w.greet(fd)
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.EINTR), errors.Is(err, syscall.ECONNABORTED):
	default:
		w.loop.Stop(fmt.Errorf("sink: with %d connections open: %w", len(w.open), os.NewSyscallError("accept4", err)))
	}
}

// greet handles a new connection. From now on, w owns it.
func (w *worker) greet(fd int) {
	w.open[fd] = struct{}{}
	if err := w.loop.Add(fd, readable, &greeter{socket: socket{w, fd}}); err != nil {
		w.loop.Stop(fmt.Errorf("sink: %w", err))
	}
}

// socket is a connection. The worker owns the descriptor until close.
type socket struct {
	w  *worker
	fd int
}

func (s *socket) close() {
	s.w.loop.Forget(s.fd)
	delete(s.w.open, s.fd)
	_ = sys.Close(s.fd)
}

func (s *socket) want(events uint32) {
	if err := s.w.loop.Want(s.fd, events); err != nil {
		s.w.loop.Stop(fmt.Errorf("sink: %w", err))
	}
}

// receive returns received bytes, in the worker's buffer. At the end of file b is empty. ok is false if no bytes
// have come. err is an error of the connection.
func (s *socket) receive() (b []byte, ok bool, err error) {
	n, err := sys.Recv(s.fd, s.w.buf, flags)
	switch {
	case err == nil:
		return s.w.buf[:n], true, nil
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.EINTR):
		return nil, false, nil
	}
	return nil, false, err
}

// send sends as much of b as the socket takes, and returns the rest.
func (s *socket) send(b []byte) (rest []byte, err error) {
	n, err := sys.Send(s.fd, b, flags)
	if errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EINTR) {
		err = nil
	}
	return b[n:], err
}

// greeter is a connection without a request yet.
type greeter struct {
	socket
	head    []byte
	greeted bool // the bytes before the request have been read (traffic.ProxyHeader)
}

func (g *greeter) Ready(uint32) {
	b, ok, err := g.receive()
	if err != nil {
		g.close()
		return
	}
	if !ok {
		return
	}
	ended := len(b) == 0
	if len(g.head) > 0 {
		b = append(g.head, b...)
	}
	if !g.greeted {
		n, whole := traffic.ProxyHeader(b)
		if !whole && !ended {
			g.head = append([]byte(nil), b...)
			return
		}
		if g.greeted, b = n > 0, b[n:]; len(b) == 0 && !ended {
			g.head = nil
			return
		}
	}
	line, kind := split(b)
	switch {
	case ended:
		// If the bytes are too few for a request, they are sent back.
		(&echo{socket: g.socket, left: endless}).begin(b)
	case kind == traffic.KindEcho:
		(&echo{socket: g.socket, left: endless}).begin(b)
	case kind == traffic.KindUnknown || line == nil && len(b) < traffic.MaxLine:
		g.head = append([]byte(nil), b...)
	default:
		g.serve(kind, line, b)
	}
}

// split returns the first line of b, or nil if the line is not complete, and the kind of the request at the
// beginning of b.
func split(b []byte) (line []byte, kind traffic.Kind) {
	for i, c := range b[:min(len(b), traffic.MaxLine)] {
		if c == '\n' {
			line = b[:i+1]
			break
		}
	}
	return line, traffic.Classify(b)
}

// serve serves the request in line. b has all received bytes, beginning with line. If the request is invalid,
// serve closes the connection.
func (g *greeter) serve(kind traffic.Kind, line, b []byte) {
	switch kind {
	case traffic.KindBulk:
		if seed, err := traffic.ParseBulk(line); err == nil {
			(&bulk{socket: g.socket, content: traffic.NewStream(seed)}).begin()
			return
		}
	case traffic.KindOnce:
		if n, err := traffic.ParseOnce(line); err == nil && int64(n) >= int64(len(b)) {
			(&echo{socket: g.socket, left: int64(n)}).begin(b)
			return
		}
	}
	g.close()
}
