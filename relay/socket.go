package relay

import (
	"time"

	"github.com/penstock/penstock/loop"
)

// A Socket is one end of a session on a loop: a connected, non-blocking stream
// socket that is registered with the loop, with which 0 for the session's a and 1
// for its b.
type Socket struct {
	FD     int
	ID     loop.ID
	Events loop.Events // so far

	TCP     bool // it is a TCP socket, not a unix one
	NoDelay bool // TCP_NODELAY is set already; otherwise it is before the second write

	// Moved is how many of the bytes that it has sent the owner has written to the other
	// end, and taken out of the queue: they count as copied. Events says nothing of
	// Readable then, unless there may be more.
	Moved int

	// Layer is spoken over the socket; nil: nothing is, and its bytes are the session's.
	Layer Layer
	// Ahead is bytes that were read from the socket before, and come first. They are borrowed until the
	// end of the session, which must not have more than a read's, 64 KiB.
	Ahead []byte

	// Gate holds the bytes that come from the socket back, those of Ahead included, but for the first Free, of which those of Moved are
	// none; nil: nothing does. Bytes that were sent as urgent data are bytes of the stream until it is open. Only one of the
	// two sockets may have one, without a Layer.
	Gate Gate
	Free int

	// Mirror gets the bytes that come from the socket; nil: none does. The owner has written to
	// it the bytes of Moved. One that was not started gets nothing, and has ended with [MirrorError].
	Mirror *Mirror

	// Rewriter changes the bytes that come from the socket, those of Ahead included; nil: nothing does.
	// There are none of Moved then, which it would miss. Hold is how long a byte may be held back, at
	// least, before it goes on for want of those that follow; twice that, at most. Below 0: until they come, or the session ends.
	Rewriter Rewriter
	Hold     time.Duration
	// Transform is a Rewriter that works on other goroutines; nil: there is none. It is in place of Rewriter.
	Transform Transform
}

func newSocket(s Socket) loopSocket {
	p := loopSocket{id: s.ID, fd: int32(s.FD), state: writable} // until a write says otherwise
	p.set(tcp, s.TCP)
	p.set(delays, s.TCP && !s.NoDelay)
	return p
}
