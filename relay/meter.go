package relay

import (
	"context"
	"io"
	"net"
	"sync/atomic"
)

// A Meter counts the bytes of connections, see [Metered]. The zero value is ready. It is safe for
// concurrent use, and must not be copied.
type Meter struct {
	read, written atomic.Int64
}

// Bytes returns how many bytes were read from the connections, and written to them, so far.
func (m *Meter) Bytes() (read, written int64) { return m.read.Load(), m.written.Load() }

// Metered returns conn with a meter, which counts live: the bytes of Read and Write, and those that a
// session or a copy moves beneath, spliced or not. So it takes the place of a wrapper that counts.
// Several connections may have the same meter; without one, m nil, the result is conn itself. Everything
// else is conn's, which the result owns, and its methods are those of [Wrap]. It is an [Unwrapper]; for code that says [io.Copy] write Wrap(Metered(conn, m)).
func Metered(conn net.Conn, m *Meter) net.Conn {
	switch {
	case isNil(conn):
		return nil
	case m == nil:
		return conn
	}
	return &metered{whole{beneath{conn}}, m}
}

type metered struct {
	whole
	meter *Meter
}

func (c *metered) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.meter.read.Add(int64(n))
	return n, err
}

func (c *metered) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.meter.written.Add(int64(n))
	return n, err
}

// RelayReader implements [Unwrapper].
func (c *metered) RelayReader(context.Context, int) (io.Reader, []byte, error) {
	return c.Conn, nil, nil
}

// meters are those of the wrappers of a source, and of a sink.
type meters struct {
	source, sink []*Meter
}

// newMeters returns nil for none.
func newMeters(source, sink []*Meter) *meters {
	if len(source)+len(sink) == 0 {
		return nil
	}
	return &meters{source, sink}
}

func noteRead(all []*Meter, n int) {
	for _, m := range all {
		m.read.Add(int64(max(n, 0)))
	}
}

func noteWritten(all []*Meter, n int) {
	for _, m := range all {
		m.written.Add(int64(max(n, 0)))
	}
}

// The moves of a pair are counted by its meters.

func (p *pair) recv(b []byte) (n int, err error) {
	if n, err = p.source.recv(b); p.meters != nil {
		noteRead(p.meters.source, n)
	}
	return n, err
}

func (p *pair) fill(c splicePipe, max int) (n int, err error) {
	if n, err = p.source.fill(c, max); p.meters != nil {
		noteRead(p.meters.source, n)
	}
	return n, err
}

func (p *pair) send(b []byte) (n int, err error) {
	if n, err = p.sink.send(b); p.meters != nil {
		noteWritten(p.meters.sink, n)
	}
	return n, err
}

func (p *pair) drain(c splicePipe, max int) (n int, err error) {
	if n, err = p.sink.drain(c, max); p.meters != nil {
		noteWritten(p.meters.sink, n)
	}
	return n, err
}

func (p *pair) transfer(max int) (n int, op string, err error) {
	if n, op, err = p.source.transfer(p.sink, max); p.meters != nil {
		noteRead(p.meters.source, n)
		noteWritten(p.meters.sink, n)
	}
	return n, op, err
}
