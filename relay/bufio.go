package relay

import (
	"bufio"
	"io"
	"net"
	"os"
	"reflect"
)

// moveBuffered is Move from a [bufio.Reader] to a descriptor. WriteTo of the reader writes the bytes that
// it has buffered, and passes on its own source, which is then moved as any other one is.
func (r *Relay) moveBuffered(dst io.Writer, src *bufio.Reader) (Flow, error) {
	to := &bufferedSink{relay: r, dst: dst}
	_, err := src.WriteTo(to)
	if to.flow.Reason = ReasonEOF; err != nil {
		to.flow.Reason = reasonOf(err)
	}
	return to.flow, err
}

// A bufferedSink is the destination of a [bufio.Reader].
type bufferedSink struct {
	relay *Relay
	dst   io.Writer
	flow  Flow
}

func (s *bufferedSink) Write(p []byte) (int, error) {
	n, err := s.dst.Write(p)
	s.flow.Copied += int64(n)
	return n, err
}

// ReadFrom implements [io.ReaderFrom]: the reader's source is moved.
func (s *bufferedSink) ReadFrom(src io.Reader) (int64, error) {
	f, err := s.relay.Move(s.dst, withWriteTo(src))
	moved := f.Bytes()
	f.Copied += s.flow.Copied
	s.flow = f
	return moved, err
}

// withWriteTo returns the connection or file whose WriteTo has passed itself on as a value of another
// type, one that has no WriteTo: tcpConnWithoutWriteTo of package net, fileWithoutWriteTo of package os.
// Both embed it. Of other types it returns src.
func withWriteTo(src io.Reader) io.Reader {
	v := reflect.ValueOf(src)
	if v.Kind() != reflect.Struct {
		return src
	}
	switch v.Type().PkgPath() {
	case "net":
		if c, ok := embedded(v, "TCPConn").(*net.TCPConn); ok {
			return c
		}
	case "os":
		if f, ok := embedded(v, "File").(*os.File); ok {
			return f
		}
	}
	return src
}

// embedded returns a struct's field of that name, nil if there is none.
func embedded(v reflect.Value, name string) any {
	f := v.FieldByName(name)
	if !f.IsValid() || !f.CanInterface() {
		return nil
	}
	return f.Interface()
}
