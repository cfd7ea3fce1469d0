package loop

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"reflect"
	"strings"
	"syscall"
)

// errClose is for a syscall.Conn that is not of package net or os.
var errClose = errors.New("it has no Close method")

// Take takes over the descriptor of a connection, listener or file of package net or os from the runtime:
// *net.TCPConn, *net.UnixConn, *net.TCPListener, *os.File and so on. It returns a non-blocking, close-on-exec
// duplicate, which belongs to the caller, and closes c. Closing interrupts reads and writes of other goroutines
// and waits for them. Later calls of c, or its finalizer, do not touch the returned descriptor. The path of a unix
// listener is not removed.
//
// Bytes that c has buffered stay in c, so pass only plain connections (a tls.Conn, for example, is not a
// syscall.Conn). After an error c is as it was, unless closing c failed. If c is nil the error wraps
// os.ErrInvalid.
func Take(c syscall.Conn) (fd int, err error) {
	if isNil(c) {
		return -1, fmt.Errorf("penstock: loop: take: c is nil: %w", os.ErrInvalid)
	}
	closer, ok := c.(io.Closer)
	if !ok {
		return -1, fmt.Errorf("penstock: loop: take %T: %w", c, errClose)
	}
	if fd, err = duplicate(c); err != nil {
		return -1, fmt.Errorf("penstock: loop: take: %w", err)
	}
	if l, ok := c.(*net.UnixListener); ok {
		l.SetUnlinkOnClose(false)
	}
	if err := closer.Close(); err != nil {
		closeSocket(fd)
		return -1, fmt.Errorf("penstock: loop: take: %w", err)
	}
	return fd, nil
}

// unlinks returns the path that a listener's Close removes, or "".
func unlinks(l net.Listener) string {
	u, ok := l.(*net.UnixListener)
	if !ok {
		return ""
	}
	path, unlink := u.Addr().String(), reflect.ValueOf(u).Elem().FieldByName("unlink") // see SetUnlinkOnClose
	if strings.HasPrefix(path, "@") || unlink.Kind() != reflect.Bool || !unlink.Bool() {
		return ""
	}
	return path
}

// isNil reports whether c is nil, or a nil pointer.
func isNil(c any) bool {
	v := reflect.ValueOf(c)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}

// Give makes a connection of package net from a connected socket. Afterwards the connection owns the socket;
// after an error the socket is closed. Call [Loop.Detach] before Give: the socket must not be registered with a
// loop. Drop is not enough, because it relies on the descriptor being closed for good, but package net keeps a
// duplicate.
func Give(fd int) (net.Conn, error) { return give(fd, net.FileConn) }

// GiveListener is Give for a listening socket.
func GiveListener(fd int) (net.Listener, error) { return give(fd, net.FileListener) }

func give[T any](fd int, from func(*os.File) (T, error)) (given T, err error) {
	f := os.NewFile(uintptr(fd), "socket")
	if f == nil {
		return given, fmt.Errorf("penstock: loop: give: %w", os.NewSyscallError("fcntl", syscall.EBADF))
	}
	given, err = from(f)
	if closeErr := f.Close(); err == nil && closeErr != nil {
		err = closeErr
	}
	if err != nil {
		return given, fmt.Errorf("penstock: loop: give: %w", err)
	}
	return given, nil
}
