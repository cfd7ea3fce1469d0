package load

import (
	"io"

	"github.com/penstock/penstock/bench/traffic"
	"github.com/penstock/penstock/internal/sys"
)

// bulk begins the workload Bulk. Each connection asks for a stream, and reads it for the planned time. Then it
// half-closes, and reads on until the server's end of file. So the bytes received are exactly the bytes sent.
func (d *drive) bulk() error {
	d.discard = make([]byte, discardSize)
	for i := range d.plan.Connections {
		seed := d.r.nextSeed()
		d.all = append(d.all, &stream{conn: conn{d, -1, i}, request: traffic.AppendBulk(nil, seed), content: traffic.NewStream(seed)})
	}
	return d.connectAll()
}

// stream is one connection.
type stream struct {
	conn
	request []byte
	ending  bool // this side has half-closed
	content *traffic.Stream
	counted int64 // bytes of content
	// The last bytes received may be the trailer.
	tail    [traffic.TrailerSize]byte
	waiting int // number of bytes in tail
}

// start sends the request, and sets the time at which to half-close.
func (s *stream) start() {
	rest, ok := s.send(s.request)
	if !ok {
		return
	}
	if len(rest) > 0 { // a new connection should have room for the request
		s.fail(io.ErrShortWrite)
		return
	}
	s.d.loop.After(s.d.plan.Duration, func() {
		s.ending = true
		s.hangUp()
	})
}

func (s *stream) Ready(uint32) {
	var n int
	var ok bool
	if s.ending || s.d.plan.Check {
		n, ok = s.read()
	} else {
		// The trailer comes only after our half-close, so all of this is content.
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
