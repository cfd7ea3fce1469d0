package listener

import (
	"errors"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// patience bounds one accept of a connection that the kernel said is there. It
// is there: the bound is for a kernel that errs.
const patience = time.Second

// empty sends the connections in the accept queue to conns. New connections may join the queue
// all the while, but it is first in, first out, and holds at most the backlog and one: no
// connection that was established before the call is behind that many others.
func (l *Listener) empty(conns chan<- net.Conn) {
	for range l.backlog + 1 {
		if !l.queued() {
			return
		}
		conn, ok := l.acceptQueued()
		if !ok {
			return
		}
		if conn != nil {
			conns <- conn
		}
	}
}

// acceptQueued takes the head of the queue out of it: a connection, or nil for
// one that had failed. It reports false if there was none.
func (l *Listener) acceptQueued() (net.Conn, bool) {
	for {
		// A deadline that has passed would keep package net from asking the kernel.
		l.sock.SetDeadline(time.Now().Add(patience))
		conn, err := l.sock.Accept()
		switch {
		case err == nil:
			return conn, true
		case failedInQueue(err):
			return nil, true
		case errors.Is(err, net.ErrClosed), errors.Is(err, os.ErrDeadlineExceeded):
			return nil, false
		case !l.pause(nil):
			return nil, false
		}
	}
}

// defaultBacklog is net.core.somaxconn since Linux 5.4.
const defaultBacklog = 4096

// backlog returns the length of accept queue that package net asks for.
func backlog() int {
	text, err := os.ReadFile("/proc/sys/net/core/somaxconn")
	if err != nil {
		return defaultBacklog
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return defaultBacklog
	}
	return n
}

// resize gives the accept queue the length that was asked for.
func (l *Listener) resize() error {
	raw, err := l.sock.SyscallConn()
	if err != nil {
		return err
	}
	if cause := raw.Control(func(fd uintptr) { err = sys.Listen(int(fd), l.cfg.Backlog) }); cause != nil {
		return cause
	}
	l.backlog = min(l.cfg.Backlog, l.backlog)
	return os.NewSyscallError("listen", err)
}

// queued reports whether a connection waits in the accept queue; not if the
// listener was closed.
func (l *Listener) queued() bool {
	raw, err := l.sock.SyscallConn()
	if err != nil {
		return false
	}
	var events int16
	err = raw.Control(func(fd uintptr) {
		for {
			var err error
			if events, err = sys.Poll(int(fd), sys.POLLIN); err != syscall.EINTR {
				return
			}
		}
	})
	return err == nil && events&sys.POLLIN != 0
}

// onlyIPv6 reports whether a socket takes connections of IPv6 alone.
func onlyIPv6(c syscall.RawConn) bool {
	only := 0
	_ = c.Control(func(fd uintptr) { only, _ = sys.GetsockoptInt(int(fd), sys.IPPROTO_IPV6, sys.IPV6_V6ONLY) })
	return only != 0
}

func closeDescriptor(fd int) error { return os.NewSyscallError("close", sys.Close(fd)) }
