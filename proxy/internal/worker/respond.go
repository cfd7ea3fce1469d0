package worker

import (
	"syscall"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

// lingerTime is how long a client that was sent a response may take to read it and end.
const lingerTime = 5 * time.Second

// respond sends a client its response. It is closed when it has ended itself, for bytes that
// it sends meanwhile would make close(2) a reset, which may overtake the response (RFC 9112,
// 9.6, describes the same for HTTP); or when its time is over.
func (w *worker) respond(d *pendingClient) {
	d.phase, d.rest = responding, d.step.Bytes
	limit := d.step.Timeout
	w.endSearch(d)
	w.unreserve(d)
	if limit <= 0 {
		limit = lingerTime
	}
	w.loop.Arm(&d.timer, (*dialTimer)(d), limit)
	w.respondOn(d)
}

// respondOn goes on with that.
func (w *worker) respondOn(d *pendingClient) {
	if d.phase == responding {
		n, err := sendSome(int(d.conn.fd), d.rest, 0)
		if err != nil {
			w.left(d)
			return
		}
		if d.rest = d.rest[n:]; len(d.rest) == 0 {
			d.phase = lingering
			_ = sys.ShutdownWrite(int(d.conn.fd))
		}
	}
	w.discard(d)
}

// discards is how many reads one turn makes to throw away a client's bytes.
const discards = 4

// discard throws away a client's bytes, and closes it when it has ended.
func (w *worker) discard(d *pendingClient) {
	first := w.firstBytes()
	for range discards {
		n, err := sys.Recv(int(d.conn.fd), first, sys.MSG_DONTWAIT)
		switch {
		case err == syscall.EAGAIN:
			return
		case err == nil && n == 0 && d.phase == responding:
			return // it still reads
		case err == nil && n == 0, err != nil && err != syscall.EINTR:
			w.closeClient(d)
			return
		}
	}
	w.loop.Again(d.id)
}
