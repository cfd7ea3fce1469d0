package load

import (
	"errors"
	"io"

	"github.com/penstock/penstock/bench/traffic"
	"github.com/penstock/penstock/internal/sys"
)

// errNotEnded is a connection that is still open when everything is over.
var errNotEnded = errors.New("it has not ended")

// bulk is the workload of that name. Each connection asks for a stream, reads it for the
// planned time, then half-closes and reads on to the end of file that answers it. So the bytes
// received are the bytes sent, exactly.
type bulk struct{ opening[*stream] }

// begin implements behaviour.
func (b *bulk) begin() error {
	b.discard = make([]byte, discardSize)
	for i := range b.plan.Connections {
		seed := b.r.nextSeed()
		b.all = append(b.all, &stream{conn: conn{b.drive, -1, i}, request: traffic.AppendBulk(nil, seed), content: traffic.NewStream(seed)})
	}
	return b.connectAll()
}

// stream is one connection.
type stream struct {
	conn
	request []byte
	ending  bool // we have half-closed
	content *traffic.Stream
	counted int64 // bytes of content
	// The last bytes received may be the trailer.
	tail    [traffic.TrailerSize]byte
	waiting int // bytes of tail
}

func (s *stream) link() *conn { return &s.conn }

// start asks, and sets the time at which to end.
func (s *stream) start() {
	rest, ok := s.send(s.request)
	if !ok {
		return
	}
	if len(rest) > 0 { // of the first bytes on a connection
		s.fail(io.ErrShortWrite)
		return
	}
	s.d.loop.After(s.d.plan.Duration, func() {
		s.ending = true
		s.hangUp()
	})
}

// Ready implements reactor.Handler.
func (s *stream) Ready(uint32) {
	var n int
	var ok bool
	if s.ending || s.d.plan.Check {
		n, ok = s.read()
	} else {
		// No trailer comes before our end, so all of it is content.
		n, ok = s.receive(s.d.discard, sys.MSG_TRUNC)
		s.counted += int64(n)
	}
	if ok && n == 0 {
		s.finish()
	}
}

// read receives, and keeps back bytes that may be the trailer. It returns the bytes received.
func (s *stream) read() (n int, ok bool) {
	buf := s.d.buf
	n, ok = s.receive(buf[traffic.TrailerSize:], 0)
	if !ok || n == 0 {
		return n, ok
	}
	b := buf[traffic.TrailerSize-s.waiting : traffic.TrailerSize+n]
	copy(b, s.tail[:s.waiting])
	content := max(len(b)-traffic.TrailerSize, 0)
	if s.d.plan.Check && !s.content.Check(b[:content]) {
		s.fail(errMismatch)
		return 0, false
	}
	s.counted += int64(content)
	s.waiting = copy(s.tail[:], b[content:])
	return n, true
}

// finish checks the end of file that has come.
func (s *stream) finish() {
	switch {
	case !s.ending:
		s.fail(io.ErrUnexpectedEOF)
	case s.waiting < traffic.TrailerSize || traffic.ParseTrailer(s.tail[:]) != s.counted:
		s.fail(errTruncated)
	default:
		s.end()
	}
}
