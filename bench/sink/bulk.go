package sink

import (
	"github.com/penstock/penstock/bench/traffic"
	"github.com/penstock/penstock/internal/sys"
)

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

// begin takes over the connection.
func (b *bulk) begin() {
	b.w.loop.Hand(b.fd, b)
	b.want(readable | sys.EPOLLOUT)
}

// Ready implements reactor.Handler.
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

// end sends the trailer and closes.
func (b *bulk) end() {
	rest, err := b.send(b.trailer)
	b.trailer = rest
	if err != nil || len(rest) == 0 {
		b.close()
	}
}
