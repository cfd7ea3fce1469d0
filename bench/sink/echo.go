package sink

import (
	"math"

	"github.com/penstock/penstock/bench/traffic"
	"github.com/penstock/penstock/internal/sys"
)

// endless is the value of left if the client ends the echo.
const endless = math.MaxInt64

// echo sends all bytes back. While bytes wait to be sent, it does not receive. So a client that does not read is
// not read from.
type echo struct {
	socket
	left    int64  // bytes to send back before closing
	waiting []byte // bytes to be sent
}

// begin sends b, the first bytes, and takes over the connection.
func (e *echo) begin(b []byte) {
	e.w.loop.Hand(e.fd, e)
	e.back(b)
}

func (e *echo) Ready(events uint32) {
	if len(e.waiting) > 0 {
		e.resume()
		return
	}
	for {
		b, ok, err := e.receive()
		switch {
		case err != nil:
			e.close()
			return
		case !ok:
			return
		case len(b) == 0:
			e.close()
			return
		}
		// After EPOLLRDHUP, the end of file is in the queue, too: receive it at once.
		if !e.back(b) || events&sys.EPOLLRDHUP == 0 {
			return
		}
	}
}

// back sends b, and reports whether to receive more.
func (e *echo) back(b []byte) bool {
	rest, err := e.send(b)
	e.left -= int64(len(b))
	switch {
	case err != nil:
		e.close()
		return false
	case len(rest) > 0:
		e.waiting = append(e.waiting[:0], rest...)
		e.want(sys.EPOLLOUT)
		return false
	case e.left <= 0:
		e.close()
		return false
	}
	return true
}

func (e *echo) resume() {
	rest, err := e.send(e.waiting)
	switch {
	case err != nil:
		e.close()
	case len(rest) > 0:
		e.waiting = e.waiting[:copy(e.waiting, rest)]
	case e.left <= 0:
		e.close()
	default:
		e.waiting = e.waiting[:0]
		e.want(readable)
	}
}

// burst is how many sends one event causes, so that a connection does not keep the others waiting for long.
const burst = 4

// bulk sends content until the client half-closes, then the trailer.
type bulk struct {
	socket
	content *traffic.Stream
	sent    int64
	trailer []byte // the unsent part of the trailer, once the client has half-closed
	ended   bool
}

func (b *bulk) begin() {
	b.w.loop.Hand(b.fd, b)
	b.want(readable | sys.EPOLLOUT)
}

func (b *bulk) Ready(events uint32) {
	if !b.ended && events&^sys.EPOLLOUT != 0 && !b.listen() {
		return
	}
	if b.ended {
		b.end()
		return
	}
	for range burst {
		chunk := b.content.Next(traffic.MaxChunk)
		rest, err := b.send(chunk)
		if err != nil {
			b.close()
			return
		}
		b.sent += int64(len(chunk) - len(rest))
		if len(rest) > 0 {
			b.content.Back(len(rest))
			return // there is no room, so another send would fail
		}
	}
}

// listen looks for the client's end of file, and reports whether the connection is still open.
func (b *bulk) listen() bool {
	got, ok, err := b.receive()
	switch {
	case err != nil:
		b.close()
		return false
	case ok && len(got) == 0:
		b.ended = true
		b.trailer = traffic.AppendTrailer(nil, b.sent)
		b.want(sys.EPOLLOUT)
	}
	return true
}

func (b *bulk) end() {
	rest, err := b.send(b.trailer)
	b.trailer = rest
	if err != nil || len(rest) == 0 {
		b.close()
	}
}
