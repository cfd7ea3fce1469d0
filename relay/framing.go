package relay

import (
	"net"
	"os"
	"reflect"
)

// A framing is the knowledge of the bounds of an end's reads and writes.
type framing uint8

const (
	// unknown: one Read may return a message, whose rest would be lost if the buffer were smaller, and
	// one Write may have to be small enough for one. Such an end gets the buffers of io.Copy.
	unknown framing = iota
	// streaming: bytes, in buffers of any size.
	streaming
	// datagrams: one Read or Write is a message, which may be empty.
	datagrams
)

// copyBuffer is the size of io.Copy's buffer, which code outside has come to expect.
const copyBuffer = 32 << 10

// framingOf returns the framing of an end. Its type says it: the address of a wrapper is its connection's, and
// the messages may be its own (a DNS client's connection over TCP is one).
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

// isTLS reports whether an end is a *tls.Conn. Programs without TLS do not get package tls for that.
func isTLS(c any) bool {
	t := reflect.TypeOf(c)
	return t != nil && t.Kind() == reflect.Pointer && t.Elem().Name() == "Conn" && t.Elem().PkgPath() == "crypto/tls"
}

// readSizes are the sizes of buffers in which a source that is moved by its own Read waits.
type readSizes struct{ first, least, largest int }

// readSizes chooses for a source. A stream's are small while its reads are, see waitingBuffer.
func (r *Relay) readSizes(from, to end, oneWay bool) readSizes {
	switch from.framing {
	case datagrams:
		return readSizes{bufferSize, bufferSize, bufferSize}
	case unknown:
		return readSizes{copyBuffer, copyBuffer, copyBuffer}
	}
	s := readSizes{smallBuffer, smallBuffer, r.cfg.WrappedBuffer}
	if to.framing != streaming {
		s.largest = min(s.largest, copyBuffer)
	}
	if oneWay {
		s.first = mediumBuffer // a copy of one message takes one read, as a rule
	}
	s.first = min(s.first, s.largest)
	return s
}
