package relay

import (
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
	// relay delivers the bytes first, and may read the slice until the session or copy has
	// ended. A nil reader keeps the wrapper's own Read.
	RelayReader(max int) (beneath io.Reader, buffered []byte)
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

// unwrapReader returns the reader that r allows to be used in its place, at most max of the
// bytes that its wrappers had read ahead, in stream order, and the meters among the wrappers. The only
// error is [ErrReadAhead].
func unwrapReader(r io.Reader, max int) (beneath io.Reader, ahead []byte, meters []*Meter, err error) {
	for range maxUnwraps {
		u, ok := r.(Unwrapper)
		if !ok {
			break
		}
		inner, buffered := u.RelayReader(max)
		if len(buffered) > max {
			return r, nil, nil, ErrReadAhead
		}
		noteRead(meters, len(buffered)) // those outside of this wrapper
		if c, ok := r.(*metered); ok {
			meters = append(meters, c.meter)
		}
		if max -= len(buffered); ahead == nil {
			ahead = buffered
		} else {
			ahead = append(slices.Clip(ahead), buffered...)
		}
		if inner == nil || same(inner, r) {
			break
		}
		if r = inner; max == 0 {
			break
		}
	}
	return r, ahead, meters, nil
}

// unwrapWriter returns the writer that w allows to be used in its place, and the meters among the
// wrappers.
func unwrapWriter(w io.Writer) (beneath io.Writer, meters []*Meter) {
	for range maxUnwraps {
		u, ok := w.(Unwrapper)
		if !ok {
			break
		}
		inner := u.RelayWriter()
		if inner == nil || same(inner, w) {
			break
		}
		if c, ok := w.(*metered); ok {
			meters = append(meters, c.meter)
		}
		w = inner
	}
	return w, meters
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
		addr := c.LocalAddr()
		return addr != nil && addr.Network() == "unix"
	}
	return false
}

// A closeWriter passes on a half-close: *net.TCPConn, *net.UnixConn, *tls.Conn.
type closeWriter interface{ CloseWrite() error }
