package relay

import (
	"io"
	"net"
	"os"
	"time"
)

// Stream returns a connection for a stream that is none, such as an end of a pipe, a terminal or a
// channel of another protocol, so that it can be joined. One that is a connection is returned as it is.
//
// It has the stream's deadlines if that has any (SetDeadline, SetReadDeadline, SetWriteDeadline), and
// os.ErrNoDeadline otherwise: then a session that is cut closes it. If it has CloseWrite() error, a session passes
// the other side's end of file on by that, although the connection itself has no such method; otherwise it cannot
// (FallbackHalfClose). It has no addresses. It is an
// [Unwrapper], so an [*os.File] is moved beneath it. Closing it closes the stream, which it owns.
func Stream(s io.ReadWriteCloser) net.Conn {
	switch c := s.(type) {
	case nil:
		return nil
	case net.Conn:
		return c
	}
	return &stream{s}
}

type stream struct{ io.ReadWriteCloser }

func (s *stream) RelayReader(int) (io.Reader, []byte) { return s.ReadWriteCloser, nil }

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
