package router

import (
	"errors"
	"net"
	"syscall"

	"github.com/penstock/penstock/proxy/display"
	"github.com/penstock/penstock/proxy/internal/tlsterm"
)

// maxCause is how long the reason of a failure is at most, in bytes: it may quote names that
// the endpoint has chosen, those of its certificate for instance.
const maxCause = 240

// causeOf is why a connection could not be made, in a line of bounded length.
func causeOf(err error) string {
	var handshake *tlsterm.Error
	var name *net.DNSError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &handshake):
		return display.Excerpt("TLS handshake: "+handshake.Err.Error(), maxCause)
	case errors.As(err, &name):
		return display.Excerpt(name.Error(), maxCause)
	}
	if errno := errnoOf(err); errno != 0 {
		return errno.Error()
	}
	return display.Excerpt(err.Error(), maxCause)
}

// errnoOf returns the system's error in an error; 0: there is none.
func errnoOf(err error) (errno syscall.Errno) {
	var timeout net.Error
	if !errors.As(err, &errno) && errors.As(err, &timeout) && timeout.Timeout() {
		return syscall.ETIMEDOUT
	}
	return errno
}
