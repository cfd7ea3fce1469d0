package sink

import (
	"math"

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

// Ready implements reactor.Handler.
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

// resume sends the waiting bytes.
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
