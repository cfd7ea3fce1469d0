package listener

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"
)

// answerTime is how long a process gets to answer on a path that is in the way.
const answerTime = time.Second

// listenUnix binds under a lock on the directory, so that of two processes that
// find the same stale path one gets it, and the other is told so.
func (l *Listener) listenUnix(ctx context.Context) error {
	if l.addr.Abstract() {
		return l.bindUnix(ctx)
	}
	p, err := newPath(l.addr.Name)
	if err != nil {
		return err
	}
	if err = l.listenAt(ctx, p); err != nil {
		return errors.Join(err, p.close())
	}
	return nil
}

// listenAt listens at a path, which is the listener's unless there is an error.
func (l *Listener) listenAt(ctx context.Context, p *path) error {
	unlock, err := p.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	err = l.bindUnix(ctx)
	if errors.Is(err, syscall.EADDRINUSE) {
		if err := p.removeStale(ctx); err != nil {
			return err
		}
		err = l.bindUnix(ctx)
	}
	if err != nil {
		return err
	}
	return l.take(p)
}

// bindUnix binds and listens. The path does not have its mode yet, but [beginning].
func (l *Listener) bindUnix(ctx context.Context) error {
	lc := net.ListenConfig{Control: l.restrict}
	ln, err := lc.Listen(ctx, "unix", l.addr.Name)
	if err != nil {
		return err
	}
	sock := ln.(*net.UnixListener)
	sock.SetUnlinkOnClose(false) // it would unlink whatever has the name by then
	l.sock = sock
	return nil
}

// take makes a path the listener's, which has just bound it, and gives it its mode. After an
// error the socket is closed.
func (l *Listener) take(p *path) error {
	err := p.take(l.addr.Mode)
	if err == nil {
		l.path = p
		return nil
	}
	return errors.Join(err, p.remove(), l.sock.Close())
}

// inUse is the error for a path that is in the way and stays there.
func inUse(why error) error {
	return fmt.Errorf("%w, and cannot be taken over: %w", syscall.EADDRINUSE, cause(why))
}
