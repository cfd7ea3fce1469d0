package relay

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
)

// An opError is a failure at a connection, as package net would return it. One is made for every session that a
// peer resets, so it is a single allocation, and only Error makes its text.
type opError struct {
	op      net.OpError
	syscall os.SyscallError // op.Err points here if it is an errno
}

// newOpError returns the error of an operation at a connection. Its caller adds the addresses if they are
// known.
func newOpError(op, network string, err error) *opError {
	if own, ok := err.(*net.OpError); ok && own.Op == op { // from a connection's own Read or Write
		err = own.Err
	}
	e := &opError{op: net.OpError{Op: op, Net: network, Err: err}}
	if errno, ok := err.(syscall.Errno); ok && network != "" && op != opHalfClose { // otherwise the text would say op twice
		e.syscall = os.SyscallError{Syscall: op, Err: errno}
		e.op.Err = &e.syscall
	}
	return e
}

func (e *opError) Error() string { return "penstock: relay: " + e.op.Error() }

func (e *opError) Unwrap() error { return &e.op }

// Timeout and Temporary make it a [net.Error].
func (e *opError) Timeout() bool { return e.op.Timeout() }

func (e *opError) Temporary() bool { return e.op.Temporary() }

// A timeoutError is the error of a session that a timeout has ended. It is a [net.Error].
type timeoutError struct {
	Reason
	untold Side // could not be told of an end of file, which may be why the session did not end earlier
}

func (e timeoutError) Error() string {
	text := "penstock: relay: " + e.String() + ": "
	if e.untold != SideNone {
		text += e.untold.String() + " has no CloseWrite: "
	}
	return text + os.ErrDeadlineExceeded.Error()
}

func (e timeoutError) Unwrap() error { return os.ErrDeadlineExceeded }

func (e timeoutError) Timeout() bool { return true }

func (e timeoutError) Temporary() bool { return true }

// connError returns a failure with the connection that it came from.
func connError(f failure, from, to any) error {
	at := from
	if f.side == sideSink {
		at = to
	}
	c, ok := at.(net.Conn)
	if !ok {
		err := f.err
		if errno, ok := err.(syscall.Errno); ok {
			err = os.NewSyscallError(f.op, errno)
		}
		return fmt.Errorf("penstock: relay: %s: %w", f.op, err)
	}
	addr, network := c.RemoteAddr(), ""
	if addr != nil {
		network = addr.Network()
	}
	e := newOpError(f.op, network, f.err)
	e.op.Source, e.op.Addr = c.LocalAddr(), addr
	return e
}

// copyError returns a failure of a copy as io.Copy would: an error of an end's own Read or Write stays as it is.
func copyError(f failure, from, to any) error {
	at := from
	if f.side == sideSink {
		at = to
	}
	_, errno := f.err.(syscall.Errno)
	switch c := at.(type) {
	case *os.File:
		name := ""
		if c != nil {
			name = c.Name()
		}
		err := f.err
		if own, ok := err.(*os.PathError); ok && own.Op == f.op { // from the file's own Read or Write
			err = own.Err
		}
		return &os.PathError{Op: f.op, Path: name, Err: err}
	case net.Conn:
		if isPlain(c) {
			return &connError(f, from, to).(*opError).op // a caller may assert this type
		}
	}
	if errno || f.op != opOf(f.side) {
		return fmt.Errorf("penstock: relay: %s: %w", f.op, f.err)
	}
	return f.err
}

// Errors of missing arguments.
var (
	errNilA       = fmt.Errorf("penstock: relay: join: connection a is nil: %w", os.ErrInvalid)
	errNilB       = fmt.Errorf("penstock: relay: join: connection b is nil: %w", os.ErrInvalid)
	errSame       = fmt.Errorf("penstock: relay: join: a and b are the same connection: %w", os.ErrInvalid)
	errNilContext = fmt.Errorf("penstock: relay: ctx is nil: %w", os.ErrInvalid)
	errNilEnded   = fmt.Errorf("penstock: relay: start: ended is nil: %w", os.ErrInvalid)
	errNilDst     = fmt.Errorf("penstock: relay: copy: dst is nil: %w", os.ErrInvalid)
	errNilSrc     = fmt.Errorf("penstock: relay: copy: src is nil: %w", os.ErrInvalid)
	errNilLoop    = fmt.Errorf("penstock: relay: driver: the loop is nil: %w", os.ErrInvalid)
	errZeroRelay  = fmt.Errorf("penstock: relay: the Relay was not made by New: %w", os.ErrInvalid)
)

// ready returns an error for a Relay that New has not made.
func (r *Relay) ready() error {
	if r == nil || r.clock == nil {
		return errZeroRelay
	}
	return nil
}

// copies returns why nothing can be copied, or nil. It is not inlined, because its caller's frame stays on the
// stack while the copy waits.
//
//go:noinline
func (r *Relay) copies(dst io.Writer, src io.Reader) error {
	if l, ok := src.(*io.LimitedReader); ok && l != nil {
		src = l.R
	} else if ok {
		src = nil
	}
	switch {
	case isMissing(dst):
		return errNilDst
	case isMissing(src):
		return errNilSrc
	}
	return r.ready()
}

// isMissing reports whether an end is nil, or a nil pointer of a type with methods that need a value. The
// methods of other types may work on nil.
func isMissing(end any) bool {
	switch c := end.(type) {
	case nil:
		return true
	case *os.File:
		return c == nil
	case *net.TCPConn, *net.UnixConn, *net.UDPConn, *net.IPConn:
		return isNil(c)
	}
	return isTLS(end) && isNil(end)
}

// copiesUntil does what copies does, for a copy with a context.
func (r *Relay) copiesUntil(ctx context.Context, dst io.Writer, src io.Reader) error {
	if ctx == nil {
		return errNilContext
	}
	return r.copies(dst, src)
}
