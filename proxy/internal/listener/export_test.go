package listener

import (
	"context"
	"errors"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/penstock/penstock/proxy/sockopt"
)

// SetAfter replaces the clock.
func (l *Listener) SetAfter(f func(time.Duration) <-chan time.Time) { l.after = f }

// Queued reports whether a connection waits in the accept queue.
func (l *Listener) Queued() bool { return l.queued() }

// WrapAccept makes the listener accept by f, which is given the real accept.
func (l *Listener) WrapAccept(f func(accept func() (net.Conn, error)) (net.Conn, error)) {
	l.sock = wrapped{l.sock, f}
}

type wrapped struct {
	stream
	f func(func() (net.Conn, error)) (net.Conn, error)
}

func (w wrapped) Accept() (net.Conn, error) { return w.f(w.stream.Accept) }

// HangPath lets calls about the path of a unix socket wait until answer is called.
func (l *Listener) HangPath() (answer func()) {
	l.path.mu.Lock()
	return sync.OnceFunc(l.path.mu.Unlock)
}

// Restrict returns the function that is called before the path of addr is bound.
func Restrict(addr sockopt.Address) func(network, address string, c syscall.RawConn) error {
	return (&Listener{addr: addr}).restrict
}

// ListenSwapped is [Listen] at a path, and calls meanwhile between bind(2) and the next step.
func ListenSwapped(ctx context.Context, addr sockopt.Address, meanwhile func()) (*Listener, error) {
	l := newListener(addr, nil)
	p, err := newUnixPath(addr.Name, false)
	if err != nil {
		return nil, err
	}
	if err := l.bindUnix(ctx); err != nil {
		return nil, errors.Join(err, p.close())
	}
	meanwhile()
	if err := l.take(p); err != nil {
		return nil, errors.Join(err, p.close())
	}
	return l, nil
}

// Fault returns the error of [Listen] for an address that the kernel refuses.
var Fault = fault

// Active returns the number of connections being served.
func (l *Limit) Active() int { return len(l.slots) }

// Max returns the greatest number of connections.
func (l *Limit) Max() int { return cap(l.slots) }
