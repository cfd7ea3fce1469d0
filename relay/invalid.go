package relay

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
)

// Errors of arguments that are missing.
var (
	errNilA       = fmt.Errorf("penstock: relay: join: connection a is nil: %w", os.ErrInvalid)
	errNilB       = fmt.Errorf("penstock: relay: join: connection b is nil: %w", os.ErrInvalid)
	errNilContext = fmt.Errorf("penstock: relay: ctx is nil: %w", os.ErrInvalid)
	errNilEnded   = fmt.Errorf("penstock: relay: start: ended is nil: %w", os.ErrInvalid)
	errNilDst     = fmt.Errorf("penstock: relay: copy: dst is nil: %w", os.ErrInvalid)
	errNilSrc     = fmt.Errorf("penstock: relay: copy: src is nil: %w", os.ErrInvalid)
	errNilLoop    = fmt.Errorf("penstock: relay: driver: the loop is nil: %w", os.ErrInvalid)
	errZeroRelay  = fmt.Errorf("penstock: relay: a Relay that New has not made: %w", os.ErrInvalid)
)

// ready returns an error for a Relay that New has not made.
func (r *Relay) ready() error {
	if r == nil || r.clock == nil {
		return errZeroRelay
	}
	return nil
}

// copies returns why nothing can be copied. It is not part of its caller's frame, which waits.
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

// isMissing reports whether an end is nil, or a nil pointer of a type whose methods need one. Those of others may not.
func isMissing(end any) bool {
	switch c := end.(type) {
	case nil:
		return true
	case *os.File:
		return c == nil
	case *net.TCPConn, *net.UnixConn, *net.UDPConn, *net.IPConn:
		return isNil(c.(net.Conn))
	}
	return isTLS(end) && isNil(end.(net.Conn))
}

// copiesUntil is copies, with a context.
func (r *Relay) copiesUntil(ctx context.Context, dst io.Writer, src io.Reader) error {
	if ctx == nil {
		return errNilContext
	}
	return r.copies(dst, src)
}
