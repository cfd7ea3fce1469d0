package worker

import (
	"syscall"

	"github.com/penstock/penstock/internal/sys"
)

// A client that sends its first bytes one by one can make the kernel ignore the low-water
// mark: each piece takes a buffer of its own, and when they fill the receive buffer, or have
// closed the window, every further one is reported (net/ipv4/tcp.c, tcp_epollin_ready; some
// 150 bytes are enough). Each peek would then go over all of them again, and at last the
// window is shut and the rest never comes. So from there on its bytes are taken out of the
// socket, which has room again, into memory of ours: at most as much as would have been looked
// at. The same goes for a unix socket, which knows no mark, and whose sender is charged for
// each piece.
const (
	vainPeeksTCP  = 2
	vainPeeksUnix = 4
)

// futilePeek counts a peek that has shown too little although the kernel was asked to wait for
// more, and reports whether to take the queued bytes from now on.
func (d *pendingClient) futilePeek(n int) bool {
	most := uint8(vainPeeksTCP)
	switch {
	case !d.conn.tcp:
		most = vainPeeksUnix
	case d.raised == 0 || n >= int(d.raised):
		return false
	}
	d.futilePeeks++
	return d.futilePeeks >= most
}

// bufferPreread looks at the taken bytes, and takes more of the client's, until they are
// enough.
func (w *worker) bufferPreread(d *pendingClient) {
	if d.buffered == nil {
		d.buffered = []byte{}
	}
	if w.loop.Late() { // the kernel frees one buffer for each piece: others go first
		w.loop.Again(d.id)
		return
	}
	first := w.firstBytes()
	for {
		need, err := d.length(d.buffered)
		switch {
		case err != nil:
			w.prereadFailed(d, err)
			return
		case len(d.buffered) > 0 && need <= len(d.buffered):
			w.prereadComplete(d, d.buffered)
			return
		}
		n, err := sys.Recv(int(d.conn.fd), first[:d.maxPreread()-len(d.buffered)], sys.MSG_DONTWAIT)
		switch {
		case n > 0:
			d.buffered = append(d.buffered, first[:n]...)
			w.taken += int64(n)
		case err == syscall.EINTR:
		case err == syscall.EAGAIN:
			d.raised = 0 // of the queued bytes, which are fewer by those taken
			d.raise(need - len(d.buffered))
			return
		case err == nil && len(d.buffered) > 0:
			w.prereadFailed(d, ErrPrereadEnded)
			return
		default:
			w.left(d)
			return
		}
	}
}

// sentOn reports whether an endpoint has got some of the taken bytes. Then no other may.
func (d *pendingClient) sentOn() bool {
	return len(d.buffered) > 0 && d.phase == writingHeader && len(d.rest) < len(d.buffered)
}
