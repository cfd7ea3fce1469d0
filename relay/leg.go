package relay

import (
	"io"
	"net"
	"time"
)

// A leg is one of the two ends of a session.
type leg struct {
	conn  net.Conn // as given; owns the descriptor, closed by the session
	src   io.Reader
	dst   io.Writer
	ahead []byte // what the wrappers had read

	srcDesc, dstDesc *descriptor // nil for an end moved by its own Read or Write
}

func newLeg(conn net.Conn) leg {
	l := leg{conn: conn, dst: unwrapWriter(conn)}
	l.src, l.ahead = unwrapReader(conn)
	l.srcDesc = newDescriptor(l.src)
	if l.dstDesc = l.srcDesc; any(l.dst) != any(l.src) {
		l.dstDesc = newDescriptor(l.dst)
	}
	return l
}

// newSource returns r, or its descriptor if it has one, as a source.
func newSource(r io.Reader, desc *descriptor) source {
	if desc != nil {
		return desc
	}
	return &opaqueSource{r: r}
}

// newSink returns w, or its descriptor if it has one, as a sink.
func newSink(w io.Writer, desc *descriptor) sink {
	if desc != nil {
		return desc
	}
	return &opaqueSink{w: w}
}

// longAgo is a deadline that has passed on any clock.
var longAgo = time.Unix(1, 0)

// interrupt makes every Read, Write and wait of the leg fail from now on. A
// connection that has no deadlines is closed instead.
func (l *leg) interrupt() {
	for _, end := range []any{l.src, l.dst} {
		d, ok := end.(interface{ SetDeadline(time.Time) error })
		if !ok || d.SetDeadline(longAgo) != nil {
			l.conn.Close()
		}
	}
}

// reset makes the coming close abort the connection, so that the peer gets RST
// and not a clean end (socket(7): SO_LINGER with a linger time of 0). Kinds of
// connection that know no reset are closed as they are.
func (l *leg) reset() {
	if c, ok := l.dst.(interface{ SetLinger(sec int) error }); ok {
		// It fails only on a socket that is gone already.
		_ = c.SetLinger(0)
	}
}
