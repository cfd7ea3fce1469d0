package relay

import (
	"syscall"

	"github.com/penstock/penstock/loop"
)

// A loopSocket is a socket of a session on a loop: one end of both directions. It keeps the state
// that epoll has reported, edge by edge, and makes a system call only if that state is not
// conclusive. If a loopSocket returns EAGAIN, an event will come.
type loopSocket struct {
	id    loop.ID
	fd    int32 // owned by the session; -1 when it is closed
	state socketState
	asked uint16 // when the side last asked, see [Driven.Look], in ticks of the loop's clock
}

type socketState uint16

const (
	readable   socketState = 1 << iota // a read may give something
	writable                           // a write may take something
	peerClosed                         // the peer has sent its end of file
	drained                            // no byte is left before that end of file
	urgent                             // urgent data was reported and may be ahead
	tcp                                // it is a TCP socket
	delays                             // TCP_NODELAY is still to be set
	wrote                              // something has been written
	gone                               // a write has failed, or epoll reported an error
	lastWay                            // the other way has ended: close(2) is near
	raised                             // its low-water mark is raised
	said                               // bytes from it have moved since the last look
	saidLast                           // of b: bytes from b have moved, and none from a since
	asking                             // of a: a had asked by the last look
	answered                           // of b: b had moved bytes by the last look
	wet                                // beneath a layer: a read of the socket itself may give something
)

func (p *loopSocket) closed() bool { return p.fd < 0 }

func (p *loopSocket) is(s socketState) bool { return p.state&s != 0 }

func (p *loopSocket) set(s socketState, on bool) {
	if on {
		p.state |= s
	} else {
		p.state &^= s
	}
}

// noted is what note sets.
const noted = readable | wet | writable | peerClosed | gone | urgent

// note records an event of epoll.
func (p *loopSocket) note(ev loop.Events) {
	if ev&(loop.Readable|loop.PeerClosed|loop.HungUp|loop.Failed|loop.Urgent) != 0 {
		p.state |= readable | wet
	}
	if ev&(loop.Writable|loop.HungUp|loop.Failed) != 0 {
		p.state |= writable
	}
	if ev&loop.PeerClosed != 0 {
		p.state |= peerClosed
	}
	if ev&loop.Failed != 0 {
		p.state |= gone
	}
	if ev&loop.Urgent != 0 {
		p.state |= urgent
	}
}

// untold prepares for the last reads and writes: they have to find out state that was not reported yet.
func (p *loopSocket) untold() {
	p.state |= readable | writable | wet
}

// unread is the answer of a read that needs no system call.
func (p *loopSocket) unread() (int, error) {
	if p.is(drained) {
		return 0, nil
	}
	return 0, syscall.EAGAIN
}

// emptied notes that a read returned less than requested, so that nothing more is queued. If an end of file was
// reported before the read began, it comes next. But a read also stops short at an urgent mark (net/ipv4/tcp.c,
// tcp_recvmsg_locked), or on a unix socket where the peer has sent descriptors (net/unix/af_unix.c,
// unix_stream_read_generic); then the next read decides.
func (p *loopSocket) emptied() {
	if p.is(urgent) || !p.is(tcp) {
		return
	}
	p.state &^= readable
	if p.is(peerClosed) {
		p.state |= drained
	}
}

// readNothing sorts out a read that gave no bytes.
func (p *loopSocket) readNothing(err error) (int, error) {
	switch err {
	case nil:
		p.state = p.state&^readable | drained
	case syscall.EAGAIN:
		p.state &^= readable
	case syscall.EINTR:
	default:
		p.state |= gone
	}
	return 0, err
}

// wroteSome notes that a write took n of m bytes. If it took fewer, there is no more room, and the kernel has
// noted a waiter (SOCK_NOSPACE).
func (p *loopSocket) wroteSome(n, m int, err error) {
	switch {
	case err == syscall.EAGAIN, err == nil && n < m && p.is(tcp):
		p.state &^= writable
	case err != nil && err != syscall.EINTR:
		p.state |= gone
	}
}

// recvMarked is a direction's recv, except that it reads an urgent byte of TCP alone, so that it can be sent as
// urgent. The source must have SO_OOBINLINE, or the byte is dropped. An urgent byte that passes a gate is sent
// as a normal byte, as the gate has seen it. A read stops at the mark, and the next one begins there:
// [loop.Urgent] comes with or before the event that the next read needs.
func (d *direction) recvMarked(from *loopSocket, p []byte) (int, error) {
	if from.state&(urgent|readable|tcp) != urgent|readable|tcp || d.mode == rewriting || d.is(limited) || !from.atMark() {
		return from.recv(p)
	}
	n, err := from.recv(p[:1])
	d.set(holdsUrgent, n == 1)
	return n, err
}

// sendMarked is a direction's send. It sends an urgent byte as urgent.
func (d *direction) sendMarked(to *loopSocket, p []byte) (int, error) {
	if !d.is(holdsUrgent) {
		return to.send(p)
	}
	n, err := to.sendUrgent(p)
	d.set(holdsUrgent, n != 1)
	return n, err
}
