package relay

import (
	"io"
	"math"
	"syscall"
	"time"

	"github.com/penstock/penstock/internal/sys"
)

func (p *loopSocket) recv(b []byte) (int, error) { return p.receive(b, sys.MSG_DONTWAIT) }

// discard reads bytes that nobody needs: TCP drops them without copying (tcp(7)).
func (p *loopSocket) discard(b []byte) (int, error) {
	if p.is(tcp) {
		return p.receive(b, sys.MSG_DONTWAIT|sys.MSG_TRUNC)
	}
	return p.recv(b)
}

func (p *loopSocket) receive(b []byte, flags int) (int, error) {
	if !p.is(readable) {
		return p.unread()
	}
	n, err := sys.Recv(int(p.fd), b, flags)
	switch {
	case n == 0 && p.stoppedAtMark(err):
		return 0, syscall.EINTR
	case n == 0:
		if err != syscall.EINTR {
			p.state &^= urgent // the read went past the mark, if there was one
		}
		return p.readNothing(err)
	case n < len(b):
		p.emptied()
	}
	return n, nil
}

// recvBeneath reads for a layer, as package net does: io.EOF is the end. A short read means that nothing more
// is queued, as in emptied.
func (p *loopSocket) recvBeneath(b []byte) (int, error) {
	n, err := sys.Recv(int(p.fd), b, sys.MSG_DONTWAIT)
	switch {
	case n == 0 && p.stoppedAtMark(err):
		return 0, syscall.EINTR
	case err == syscall.EAGAIN:
		p.state &^= wet
	case err == nil && n == 0:
		return 0, io.EOF
	case n < len(b) && !p.is(urgent) && !p.is(peerClosed) && p.is(tcp):
		p.state &^= wet
	}
	return max(n, 0), err
}

// fill splices. A short splice proves nothing: a pipe is full when its slots are, however little they hold. But
// with a raised mark the remaining bytes may wait until the mark is reached, which raises an event, or until
// the guard looks.
func (p *loopSocket) fill(c splicePipe, max int) (int, error) {
	if !p.is(readable) {
		return p.unread()
	}
	n, err := c.FillSocket(int(p.fd), max)
	if n > 0 && n < max/2 && p.state&(raised|peerClosed|urgent) == raised {
		p.state &^= readable
	}
	return n, err
}

// peek implements source.peek. If no urgent mark is near, a splice that returned EAGAIN has found the queue
// empty. If the end of file was reported, a splice that returned 0 has reached it.
func (p *loopSocket) peek(spliceErr error) (int, error) {
	if !p.is(readable) {
		return p.unread()
	}
	if !p.is(urgent) && (spliceErr != nil || p.is(peerClosed)) {
		return p.readNothing(spliceErr)
	}
	var b [1]byte
	n, err := sys.Recv(int(p.fd), b[:], sys.MSG_PEEK|sys.MSG_DONTWAIT)
	switch {
	case n == 0 && p.stoppedAtMark(err):
		return 0, syscall.EINTR
	case n == 0:
		return p.readNothing(err)
	}
	p.state |= urgent // an urgent mark may be why splice has stopped
	return n, nil
}

// stoppedAtMark reports whether a socket with reported urgent data can be read in spite of EAGAIN; see the
// function stoppedAtMark.
func (p *loopSocket) stoppedAtMark(err error) bool {
	return err == syscall.EAGAIN && p.is(urgent) && p.is(tcp) && stoppedAtMark(int(p.fd))
}

func (p *loopSocket) send(b []byte) (int, error) { return p.transmit(b, 0) }

// sendUrgent sends a byte as urgent data, or on a unix socket as a byte of the stream.
func (p *loopSocket) sendUrgent(b []byte) (int, error) {
	if p.is(tcp) {
		return p.transmit(b, sys.MSG_OOB)
	}
	return p.send(b)
}

func (p *loopSocket) transmit(b []byte, flags int) (int, error) {
	if !p.is(writable) {
		return 0, syscall.EAGAIN
	}
	p.hurry()
	n, err := sys.Send(int(p.fd), b, flags|sys.MSG_DONTWAIT|sys.MSG_NOSIGNAL)
	p.wroteSome(n, len(b), err)
	return n, err
}

// atMark reports whether the next byte is an urgent one that a read returns. Without SO_OOBINLINE a read skips
// it.
func (p *loopSocket) atMark() bool {
	at, err := sys.SIOCATMARK(int(p.fd))
	if !at || err != nil {
		return false
	}
	inline, err := sys.GetsockoptInt(int(p.fd), sys.SOL_SOCKET, sys.SO_OOBINLINE)
	return inline == 1 && err == nil
}

// drain splices. A short splice proves nothing here either: a signal, such as one of the runtime's, can stop it
// after some bytes (fs/splice.c, splice_to_socket), and then no event is requested.
func (p *loopSocket) drain(c splicePipe, max int) (int, error) {
	if !p.is(writable) {
		return 0, syscall.EAGAIN
	}
	p.hurry()
	n, err := c.DrainSocket(int(p.fd), max)
	p.wroteSome(n, n, err)
	return n, err
}

// hurry sets TCP_NODELAY before the second write: Nagle's algorithm never delays
// the first.
func (p *loopSocket) hurry() {
	if p.state&(delays|wrote) == delays|wrote {
		p.state &^= delays
		_ = sys.SetsockoptInt(int(p.fd), sys.IPPROTO_TCP, sys.TCP_NODELAY, 1)
	}
	p.state |= wrote
}

// closeWrite passes the end of file on, unless close(2) is about to do so: when the other direction has ended
// too, and no unread byte is left that would turn the close into a reset.
func (p *loopSocket) closeWrite() error {
	if p.is(lastWay) {
		return nil
	}
	return sys.ShutdownWrite(int(p.fd))
}

func (p *loopSocket) raiseMark(n int) bool {
	ok := p.is(tcp) && sys.SetsockoptInt(int(p.fd), sys.SOL_SOCKET, sys.SO_RCVLOWAT, n) == nil
	p.set(raised, ok)
	return ok
}

func (p *loopSocket) lowerMark() {
	p.state &^= raised
	_ = sys.SetsockoptInt(int(p.fd), sys.SOL_SOCKET, sys.SO_RCVLOWAT, 1)
}

// giveUpAfter makes the kernel give up the connection, with ETIMEDOUT, when bytes were not acknowledged for
// that time, or not sent because of a closed window.
func (p *loopSocket) giveUpAfter(d time.Duration) {
	if p.is(tcp) {
		ms := max(1, min(d.Milliseconds(), math.MaxInt32))
		_ = sys.SetsockoptInt(int(p.fd), sys.IPPROTO_TCP, sys.TCP_USER_TIMEOUT, int(ms)) // without it the kernel tries for longer
	}
}

// aborted can be true only after a failed write or a reported error: only these collect a reset.
func (p *loopSocket) aborted() bool {
	if !p.is(tcp) || !p.is(gone) {
		return false
	}
	state, err := sys.TCPState(int(p.fd))
	return err == nil && state == sys.TCP_CLOSE
}

func (p *loopSocket) queued() int {
	n, err := sys.FIONREAD(int(p.fd))
	if err != nil {
		return 0
	}
	return n
}

// socketError collects the socket's error, or nil.
func (p *loopSocket) socketError() error {
	errno, err := sys.GetsockoptInt(int(p.fd), sys.SOL_SOCKET, sys.SO_ERROR)
	if err == nil && errno != 0 {
		err = syscall.Errno(errno)
	}
	return err
}

// abort makes the next close send a reset, and returns how much of the send queue is lost. sent: also what was sent, and
// not acknowledged.
func (p *loopSocket) abort(sent bool) (lost int64) {
	if !p.is(tcp) {
		return 0
	}
	lost = untaken(int(p.fd), sent)
	_ = sys.AbortOnClose(int(p.fd))
	return lost
}

func (p *loopSocket) close() {
	_ = sys.Close(int(p.fd))
	p.fd = -1
}
