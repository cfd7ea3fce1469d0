package relay

import (
	"errors"
	"io"
	"net"
	"os"
	"reflect"
	"strings"
	"syscall"
	"time"
)

// An opaqueSource is an end that is moved by its own Read, which may wait.
type opaqueSource struct {
	r      io.Reader
	leg    *legState
	buffer waitingBuffer
	framing
	err   error         // came together with bytes; the next recv returns it
	pause time.Duration // before the next Read, after a Read of nothing
}

// recv returns EINTR after a Read that returned 0 and nil: nothing has happened ([io.Reader]). A serial
// port with a read timeout does that. It pauses, so that a Read that does not wait takes no whole CPU.
func (s *opaqueSource) recv(p []byte) (int, error) {
	if s.err == nil {
		n, err := s.r.Read(p)
		if n < 0 && err != nil { // ReadMsgUnix of package net returns that after a wait; io.Copy takes it for the error, too
			n = 0
		}
		if n < 0 || n > len(p) { // nobody knows which bytes were read
			return 0, errInvalidRead
		}
		if err == io.EOF {
			if gone := s.leg.gone.Load(); s.leg.stopped.Load() {
				err = net.ErrClosed
			} else if gone != nil {
				err = gone
			}
		}
		s.err = err
		switch {
		case n > 0:
			s.pause = 0
			s.buffer.note(n)
			return n, nil
		case err == nil:
			if s.framing != datagrams { // an empty datagram is something
				time.Sleep(s.pause)
				s.pause = min(2*s.pause+time.Microsecond, time.Millisecond)
			}
			return 0, syscall.EINTR
		}
	}
	err := s.err
	if s.err = nil; err == io.EOF { // as in io.Copy: a wrapped io.EOF is an error
		return 0, nil
	}
	return 0, final(err)
}

// final marks an EAGAIN or EINTR of a wrapper's Read or Write, so that it does not look like the answer of a
// non-blocking descriptor, which can be waited for.
func final(err error) error {
	if errno, ok := err.(syscall.Errno); ok && errno.Temporary() {
		return os.NewSyscallError("wrapped connection", errno)
	}
	return err
}

// The following methods are never called: a direction with an opaque end copies.

func (s *opaqueSource) fill(splicePipe, int) (int, error) { return 0, syscall.EINVAL }

func (s *opaqueSource) peek(err error) (int, error) { return 0, err }

func (s *opaqueSource) transfer(sink, int) (int, string, error) { return 0, "", syscall.EINVAL }

func (s *opaqueSource) raiseMark(int) bool { return false }

func (s *opaqueSource) lowerMark() {}

// aborted reports whether a Write of the session has met a reset of the TCP socket beneath, if there is one. Otherwise a
// wrapper's end of file came from its peer, whatever became of the socket after that.
func (s *opaqueSource) aborted() bool {
	return s.leg.busy.Load() && s.leg.aborted(s.r) || s.leg.gone.Load() != nil
}

func (s *opaqueSource) queued() int { return 0 }

// An opaqueSink is an end that is moved by its own Write, which may wait.
type opaqueSink struct {
	w    io.Writer
	leg  *legState
	owed bool // the end of file has still to be passed on, see passOwed
}

// errInvalidWrite: a wrapper breaks the contract of [io.Writer]. Package io returns this error but does not
// export it.
var _, errInvalidWrite = io.Copy(liar{}, struct{ io.Reader }{strings.NewReader("x")})

// A liar claims to have written more than it was given.
type liar struct{}

func (liar) Write(p []byte) (int, error) { return len(p) + 1, nil }

func (s *opaqueSink) send(p []byte) (int, error) {
	s.leg.busy.Store(true)
	defer s.leg.busy.Store(false)
	n, err := s.w.Write(p)
	if n < 0 || n > len(p) { // nobody knows which bytes were written
		n = 0
		if err == nil {
			err = errInvalidWrite
		}
	}
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	if err = final(err); err != nil {
		s.leg.gone.Store(&writeFailed{err})
	}
	return n, err
}

// A writeFailed takes the place of an end of file that a leg reads after one of its Writes has failed: a wrapper
// may show a reset so. The Write's error ends the session, and the direction of that Write tells it.
type writeFailed struct{ error }

func (e *writeFailed) Unwrap() error { return e.error }

func (s *opaqueSink) drain(splicePipe, int) (int, error) { return 0, syscall.EINVAL }

func (s *opaqueSink) closeWrite() error {
	if s.leg.over {
		return nil
	}
	c, ok := s.w.(closeWriter)
	if !ok {
		return errNoHalfClose
	}
	s.leg.shut.Store(true)
	err := c.CloseWrite()
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return errNoHalfClose
	case err == io.EOF: // a channel of SSH that the peer has closed: the peer expects nothing more
		return nil
	case err != nil && strings.HasSuffix(err.Error(), earlyEnd):
		s.owed = true
		return nil
	}
	return err
}

// earlyEnd is the error of a *tls.Conn's CloseWrite before its handshake is complete. Package tls does not
// export it, and a wrapper may have passed it on.
const earlyEnd = "tls: CloseWrite called before handshake complete"

// passOwed passes on an end of file that came before a TLS handshake, once that is complete: an empty Write
// waits for it. An error means that the end cannot be passed on.
func (s *opaqueSink) passOwed() error {
	s.owed = false
	if _, err := s.w.Write(nil); err != nil {
		return err
	}
	if err := s.closeWrite(); err != nil || !s.owed {
		return err
	}
	return errNoHalfClose
}

// A framing says what the bounds of an end's reads and writes mean.
type framing uint8

const (
	// unknown: one Read may return one message, and drop the part that does not fit into the buffer; one Write
	// may become one message, which must not be too large. Such an end gets buffers of io.Copy's size.
	unknown framing = iota
	// streaming: bytes, in buffers of any size.
	streaming
	// datagrams: one Read or Write is a message, which may be empty.
	datagrams
)

// copyBuffer is the size of io.Copy's buffer, which other code has come to expect.
const copyBuffer = 32 << 10

// framingOf returns the framing of an end. Only the type shows it: a wrapper returns the address of its
// connection but may have its own messages, like a DNS client's connection over TCP.
func framingOf(c any) framing {
	switch c := c.(type) {
	case *net.UDPConn, *net.IPConn:
		return datagrams
	case *net.UnixConn:
		if c != nil && !isPlain(c) {
			return datagrams
		}
	}
	if f, is := c.(*os.File); is {
		return framingOfFile(f)
	}
	if isPlain(c) || isTLS(c) {
		return streaming
	}
	return unknown
}

// isTLS reports whether an end is a *tls.Conn, without linking package tls into programs that have no TLS.
func isTLS(c any) bool {
	t := reflect.TypeOf(c)
	return t != nil && t.Kind() == reflect.Pointer && t.Elem().Name() == "Conn" && t.Elem().PkgPath() == "crypto/tls"
}

// readSizes are sizes of the buffers in which a source that is moved by its own Read waits.
type readSizes struct{ first, least, largest int }

// readSizes chooses the sizes for a source. The buffers of a stream are small while its reads are, see
// waitingBuffer.
func (r *Relay) readSizes(from, to end, oneWay bool) readSizes {
	switch from.framing {
	case datagrams:
		return readSizes{bufferSize, bufferSize, bufferSize}
	case unknown:
		return readSizes{copyBuffer, copyBuffer, copyBuffer}
	}
	s := readSizes{smallBuffer, smallBuffer, bufferSize}
	if to.framing != streaming {
		s.largest = min(s.largest, copyBuffer)
	}
	if oneWay {
		s.first = mediumBuffer // a copy of one message usually takes one read
	}
	s.first = min(s.first, s.largest)
	return s
}
