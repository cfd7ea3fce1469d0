package relay

import (
	"bufio"
	"context"
	"io"
	"net"
	"os"
	"reflect"
)

// moveBuffered is move from a [bufio.Reader] to a descriptor. WriteTo of the reader writes the bytes that
// it has buffered, and passes on its own source, which is then moved as any other one is.
func (r *Relay) moveBuffered(dst io.Writer, src *bufio.Reader, f *Flow) error {
	to := &bufferedSink{relay: r, dst: dst, connection: connectionOf(src)}
	_, err := src.WriteTo(to)
	if to.rest != nil && err == nil {
		_, err = to.move(to.rest)
	}
	if to.flow.Reason = ReasonEOF; err != nil {
		to.flow.Reason = reasonOf(err)
	}
	*f = to.flow
	return err
}

// A bufferedSink is the destination of a [bufio.Reader].
type bufferedSink struct {
	relay      *Relay
	dst        io.Writer
	flow       Flow
	connection uintptr   // the *net.TCPConn that the reader reads; 0: it reads something else
	rest       io.Reader // that connection, when it is to be moved after WriteTo
}

// connectionOf returns the address of the [net.TCPConn] that a reader reads itself, or 0.
func connectionOf(src *bufio.Reader) uintptr {
	rd := reflect.ValueOf(src).Elem().FieldByName("rd")
	if rd.Kind() != reflect.Interface || rd.IsNil() || rd.Elem().Type() != reflect.TypeFor[*net.TCPConn]() {
		return 0
	}
	return rd.Elem().Pointer()
}

// writesFile reports whether a writer writes to a file itself.
func writesFile(dst *bufio.Writer) bool {
	wr := reflect.ValueOf(dst).Elem().FieldByName("wr")
	return wr.Kind() == reflect.Interface && !wr.IsNil() && wr.Elem().Type() == reflect.TypeFor[*os.File]()
}

func (s *bufferedSink) Write(p []byte) (int, error) {
	n, err := s.dst.Write(p)
	s.flow.Copied += int64(n)
	return n, err
}

// ReadFrom implements [io.ReaderFrom]: the reader's source is moved. If no code but that of packages bufio,
// net and io is between, it is moved after the return: on top of their frames the goroutine would
// need a stack of 8 KiB for as long as it waits, and not of 4.
func (s *bufferedSink) ReadFrom(src io.Reader) (int64, error) {
	src = withWriteTo(src)
	if c, ok := src.(*net.TCPConn); ok && s.connection == reflect.ValueOf(c).Pointer() {
		s.rest = c
		return 0, nil
	}
	return s.move(src)
}

func (s *bufferedSink) move(src io.Reader) (int64, error) {
	copied := s.flow.Copied
	s.flow = Flow{}
	err := s.relay.move(context.Background(), s.dst, src, &s.flow)
	moved := s.flow.Bytes()
	s.flow.Copied += copied
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
