package relay

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"reflect"
	"slices"
)

// An Unwrapper is a wrapper of a connection or file that allows relay to move
// bytes beneath it, so that wrapping does not cost the zero-copy path. A wrapper
// that changes the bytes must not implement it.
//
// Counting and idle timeouts are no reason to see every byte: [Session.Result]
// counts live, and [Config] has the timeouts.
type Unwrapper interface {
	// RelayReader is called before the first byte is read, once for a session and once for each
	// copy. It returns the reader to use in the wrapper's place, and the bytes that the wrapper
	// has read from it but not handed out: all of them, but at most max. With that they are
	// handed out, and the wrapper must not return them again. Those beyond max stay with the
	// wrapper: max is less than math.MaxInt only for a copy that ends there ([Relay.CopyN]), and
	// relay reads no further byte then.
	//
	// It may wait, for the rest of a header for instance, and stops when ctx ends: with the session, or with
	// the context of a copy. The time counts for the session's timeouts, and the bytes of the other direction
	// go on meanwhile; RelayWriter may be called at the same time. An error is that of a Read
	// after the buffered bytes: io.EOF ends the stream, any other fails the session or copy.
	//
	// relay delivers the bytes first, and may read the slice until the session or copy has
	// ended. A nil reader keeps the wrapper's own Read.
	RelayReader(ctx context.Context, max int) (beneath io.Reader, buffered []byte, err error)
	// RelayWriter is called before the first byte is written. It returns the writer to use in
	// the wrapper's place, after the wrapper has flushed its own bytes. A nil writer keeps the
	// wrapper's own Write. The end of file is passed on by the CloseWrite of that writer, and not by
	// the wrapper's.
	RelayWriter() (beneath io.Writer)
}

// maxUnwraps bounds how deep wrappers are followed, should they go in a circle.
const maxUnwraps = 16

// ErrReadAhead is returned by a copy if an [Unwrapper] has handed out more bytes than it was asked for:
// nothing was moved, and these bytes are lost.
var ErrReadAhead = errors.New("penstock: relay: RelayReader returned more bytes than it was asked for")

// An unwrapped reader or writer is used in the place of its wrappers.
type unwrapped struct {
	r      io.Reader
	w      io.Writer
	ahead  []byte   // read by the wrappers before, in stream order
	meters []*Meter // among the wrappers
	stream bool     // one of the wrappers has said so, see [Stream]
	err    error    // to be returned by the first read after ahead
}

// unwrapReader returns the reader that r allows to be used in its place, with at most max bytes ahead. The only
// error is [ErrReadAhead]: those of wrappers are in the result.
func unwrapReader(ctx context.Context, r io.Reader, max int) (u unwrapped, err error) {
	u.r = r
	for range maxUnwraps {
		w, ok := u.r.(Unwrapper)
		if !ok {
			break
		}
		inner, buffered, err := w.RelayReader(ctx, max)
		if len(buffered) > max {
			return u, ErrReadAhead
		}
		noteRead(u.meters, len(buffered)) // those outside of this wrapper
		u.through(w)
		if max -= len(buffered); u.ahead == nil {
			u.ahead = buffered
		} else {
			u.ahead = append(slices.Clip(u.ahead), buffered...)
		}
		if u.err = err; err != nil || inner == nil || same(inner, u.r) {
			break
		}
		if u.r = inner; max == 0 {
			break
		}
	}
	return u, nil
}

// unwrapWriter returns the writer that w allows to be used in its place.
func unwrapWriter(w io.Writer) (u unwrapped) {
	u.w = w
	for range maxUnwraps {
		w, ok := u.w.(Unwrapper)
		if !ok {
			break
		}
		inner := w.RelayWriter()
		if inner == nil || same(inner, u.w) {
			break
		}
		u.through(w)
		u.w = inner
	}
	return u
}

// through notes the meter or the declaration of a wrapper of this package.
func (u *unwrapped) through(w Unwrapper) {
	switch w := w.(type) {
	case *metered:
		u.meters = append(u.meters, w.meter)
	case *stream, *streamConn:
		u.stream = true
	}
}

// same reports whether a wrapper returned itself. Values that cannot be compared
// are not the same.
func same(a, b any) bool {
	return reflect.TypeOf(a).Comparable() && reflect.TypeOf(b).Comparable() && a == b
}

// isPlain reports whether c is one of the types that relay knows to be nothing
// but their descriptor. Interfaces are not asked: a struct that embeds a
// *net.TCPConn has all its methods, SyscallConn included, and may still want to
// see every byte.
func isPlain(c any) bool {
	switch c := c.(type) {
	case *net.TCPConn:
		return c != nil
	case *os.File:
		return c != nil
	case *net.UnixConn:
		if c == nil {
			return false
		}
		addr := c.LocalAddr()
		return addr != nil && addr.Network() == "unix"
	}
	return false
}

func isFile(c any) bool {
	_, is := c.(*os.File)
	return is
}

// A closeWriter passes on a half-close: *net.TCPConn, *net.UnixConn, *tls.Conn.
type closeWriter interface{ CloseWrite() error }
