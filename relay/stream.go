package relay

import (
	"context"
	"io"
	"net"
	"os"
	"time"
)

// Stream returns a connection for a stream that is none, such as an end of a pipe, a terminal or a
// channel of another protocol, so that it can be joined. It says that s is a stream of bytes, and not of messages: the
// buffers in which its Read waits are small while little comes, see [Config.WrappedBuffer]. So it is of use for a
// wrapper of a connection, too, which is else offered 32 KiB at least, as by io.Copy. It says nothing of a connection
// whose kind is known.
//
// Of a stream that is no connection the result has the deadlines if that has any (SetDeadline, SetReadDeadline, SetWriteDeadline), and
// os.ErrNoDeadline otherwise: then a session that is cut closes it. If it has CloseWrite() error, a session passes
// the other side's end of file on by that, although the connection itself has no such method; otherwise it cannot
// (FallbackHalfClose). It has no addresses. It is an
// [Unwrapper], so an [*os.File] is moved beneath it. Closing it closes the stream, which it owns.
func Stream(s io.ReadWriteCloser) net.Conn {
	switch c := s.(type) {
	case nil:
		return nil
	case net.Conn:
		if isNil(c) || framingOf(c) != unknown {
			return c
		}
		return &streamConn{beneath{c}}
	}
	return &stream{s}
}

// A streamConn is a connection that is a stream.
type streamConn struct{ beneath }

func (s *streamConn) RelayReader(context.Context, int) (io.Reader, []byte, error) {
	return s.Conn, nil, nil
}

type stream struct{ io.ReadWriteCloser }

func (s *stream) RelayReader(context.Context, int) (io.Reader, []byte, error) {
	return s.ReadWriteCloser, nil, nil
}

func (s *stream) RelayWriter() io.Writer { return s.ReadWriteCloser }

func (s *stream) LocalAddr() net.Addr { return nil }

func (s *stream) RemoteAddr() net.Addr { return nil }

func (s *stream) SetDeadline(t time.Time) error {
	if d, ok := s.ReadWriteCloser.(deadliner); ok {
		return d.SetDeadline(t)
	}
	return os.ErrNoDeadline
}

func (s *stream) SetReadDeadline(t time.Time) error {
	if d, ok := s.ReadWriteCloser.(interface{ SetReadDeadline(time.Time) error }); ok {
		return d.SetReadDeadline(t)
	}
	return os.ErrNoDeadline
}

func (s *stream) SetWriteDeadline(t time.Time) error {
	if d, ok := s.ReadWriteCloser.(interface{ SetWriteDeadline(time.Time) error }); ok {
		return d.SetWriteDeadline(t)
	}
	return os.ErrNoDeadline
}
