package listener

import (
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/penstock/penstock/internal/sys"
)

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
