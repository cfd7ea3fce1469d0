package load

import (
	"errors"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/bench/traffic"
)

// bulk asks for a stream, reads it for the planned time, then half-closes and
// reads on to the end of file that answers it: so what was received is what
// was sent, to the byte.
func (r *Runner) bulk(c *net.TCPConn, p Plan, seed uint32) (tally, error) {
	request := traffic.AppendBulk(nil, seed)
	t := tally{sent: int64(len(request))}
	if err := c.SetDeadline(r.bound(p)); err != nil {
		return t, err
	}
	if _, err := c.Write(request); err != nil {
		return t, err
	}
	var ending atomic.Bool
	defer time.AfterFunc(p.Duration, func() {
		ending.Store(true)
		_ = c.CloseWrite() // if it fails, so does the read
	}).Stop()

	body, buf := newBody(seed), make([]byte, traffic.TrailerSize+traffic.MaxChunk)
	for {
		n, err := c.Read(body.room(buf))
		t.received += int64(n)
		r.received.Add(int64(n))
		if !body.took(buf, n) {
			return t, errMismatch
		}
		switch {
		case err == nil:
		case !errors.Is(err, io.EOF):
			return t, err
		case !ending.Load():
			return t, io.ErrUnexpectedEOF
		default:
			return t, body.end(buf)
		}
	}
}

// body checks a bulk stream as it comes. The last bytes read may be its
// trailer, so they wait at the front of the buffer until more have come.
type body struct {
	content *traffic.Stream
	checked int64 // bytes of content
	waiting int   // bytes at the front of the buffer
}

func newBody(seed uint32) *body { return &body{content: traffic.NewStream(seed)} }

// room is where to read the next bytes to.
func (b *body) room(buf []byte) []byte { return buf[b.waiting:] }

// took checks n bytes more, and reports whether they are right so far.
func (b *body) took(buf []byte, n int) bool {
	have := b.waiting + n
	content := max(have-traffic.TrailerSize, 0)
	if !b.content.Check(buf[:content]) {
		return false
	}
	b.checked += int64(content)
	b.waiting = copy(buf, buf[content:have])
	return true
}

// end checks the trailer.
func (b *body) end(buf []byte) error {
	if b.waiting < traffic.TrailerSize || traffic.ParseTrailer(buf) != b.checked {
		return errTruncated
	}
	return nil
}
