package relay

import (
	"errors"
	"io"
	"net"
	"syscall"
	"time"

	"github.com/penstock/penstock/relay/driver"
)

// A layered is an end of a session over which a Layer is spoken. It is the net.Conn beneath the Layer.
type layered struct {
	*loopSocket
	layer driver.Layer
	drv   *Driver
	ahead []byte // read from the socket before; borrowed
	out   []byte // written by the layer, but not yet taken by the socket; nil: none
	sent  int    // how much of out was sent
	shut  bool   // the layer has written its end
}

// A layeredLink is the link of a direction with at least one layered end.
type layeredLink struct {
	of       *Driven
	from, to *loopSocket
	in, out  *layered // nil: there is no layer
}

// newLayered returns an end, or nil without a layer.
func (d *Driver) newLayered(p *loopSocket, s *Socket) *layered {
	if s.Layer == nil {
		return nil
	}
	y := &layered{loopSocket: p, layer: s.Layer, drv: d, ahead: s.Ahead}
	s.Layer.Over(y)
	return y
}

// bind sets up both directions.
func (s *Driven) bind(a, b *Socket) {
	if a.Layer == nil && b.Layer == nil {
		s.drv.bind(&s.ab, (*aToB)(s))
		s.drv.bind(&s.ba, (*bToA)(s))
	} else {
		s.drv.bindLayered(s, a, b)
	}
	if a.Layer == nil {
		s.ab.setAhead(a.Ahead)
	}
	if b.Layer == nil {
		s.ba.setAhead(b.Ahead)
	}
}

// bindLayered sets up both directions of a session with a layer. The layer may hold bytes for which no event
// comes.
func (d *Driver) bindLayered(s *Driven, a, b *Socket) {
	x, y := d.newLayered(&s.a, a), d.newLayered(&s.b, b)
	s.ab = direction{link: &layeredLink{s, &s.a, &s.b, x, y}}
	s.ba = direction{link: &layeredLink{s, &s.b, &s.a, y, x}}
	for _, way := range []*direction{&s.ab, &s.ba} {
		way.set(pinned, true)
		way.fallback(FallbackWrapped)
	}
	s.a.untold()
	s.b.untold()
}

// layers returns the two ends, each nil without a layer.
func (s *Driven) layers() (a, b *layered) {
	if l, ok := s.ab.link.(*layeredLink); ok {
		return l.in, l.out
	}
	return nil, nil
}

// flushLayers writes what is left of the layers' bytes. The next write meets a failure.
func (s *Driven) flushLayers() {
	if l, ok := s.ab.link.(*layeredLink); ok {
		for _, y := range [2]*layered{l.in, l.out} {
			if y != nil {
				_ = y.flush()
			}
		}
	}
}

func (l *layeredLink) environment() *environment { return &l.of.drv.env }

func (l *layeredLink) recv(p []byte) (int, error) {
	if l.in == nil {
		return l.from.recv(p)
	}
	return l.in.recv(p)
}

func (l *layeredLink) send(p []byte) (int, error) {
	if l.out == nil {
		return l.to.send(p)
	}
	return l.out.send(p)
}

func (l *layeredLink) closeWrite() error {
	if l.out == nil {
		return l.to.closeWrite()
	}
	return l.out.closeWrite()
}

// aborted reports no reset on a side with a layer: its end of file came from the peer, whatever became of the
// socket after that.
func (l *layeredLink) aborted() bool { return l.in == nil && l.from.aborted() }

func (l *layeredLink) queued() int {
	if l.in == nil {
		return l.from.queued()
	}
	return 0 // it is not known how many bytes of the session are queued
}

// The following methods are never called: a direction with a layer copies.

func (l *layeredLink) fill(splicePipe, int) (int, error)          { return 0, syscall.EINVAL }
func (l *layeredLink) peek(err error) (int, error)                { return 0, err }
func (l *layeredLink) drain(splicePipe, int) (int, error)         { return 0, syscall.EINVAL }
func (l *layeredLink) transfer(int) (n int, op string, err error) { return 0, "", errNoTransfer }
func (l *layeredLink) raiseMark(int) bool                         { return false }
func (l *layeredLink) lowerMark()                                 {}

// recv reads what the layer carries. Its socket stays readable until the layer has nothing more.
func (y *layered) recv(p []byte) (int, error) {
	if !y.is(readable) {
		return y.unread()
	}
	n, err := y.layer.Read(p)
	if n < 0 || n > len(p) {
		return 0, errInvalidRead
	}
	if flushErr := y.flush(); n == 0 && flushErr != nil { // the layer could not send an answer of its own
		return 0, flushErr
	}
	switch {
	case n > 0:
		return n, nil
	case err == nil:
		return 0, io.ErrNoProgress // the loop must not wait for it
	case err == io.EOF:
		return y.readNothing(nil)
	case errors.Is(err, syscall.EAGAIN):
		y.set(readable, y.is(wet)) // bytes are left only if there was no room for the layer's answers
		if y.is(wet) && !y.behind() {
			return 0, syscall.EINTR // now there is room, and no event says so
		}
		return 0, syscall.EAGAIN
	}
	return 0, err
}

// send makes the layer write, unless bytes of an earlier write are left; so the bytes of one write at most are
// kept. It takes all or nothing.
func (y *layered) send(p []byte) (int, error) {
	switch err := y.flush(); {
	case err != nil:
		return 0, err
	case y.out != nil:
		return 0, syscall.EAGAIN
	}
	n, err := y.layer.Write(p)
	if n < 0 || n > len(p) {
		return 0, errInvalidWrite
	}
	if err == nil {
		err = y.flush()
		if err != nil {
			n = 0
		} else if n < len(p) {
			err = io.ErrShortWrite
		}
	}
	return n, err
}

// closeWrite makes the layer send its end, and returns EAGAIN until the socket has taken all of it. It does not
// shut the socket down: the peer of the layer may still send.
func (y *layered) closeWrite() error {
	if !y.shut {
		y.shut = true
		if err := y.layer.CloseWrite(); err != nil {
			return err
		}
	}
	switch err := y.flush(); {
	case err != nil:
		return err
	case y.out != nil:
		return syscall.EAGAIN
	}
	return nil
}

// end is called at the end of the session, before the socket is closed. It reports whether the peer sees an
// orderly end.
func (y *layered) end() (orderly bool) { return y.closeWrite() == nil }

// flush writes as many of the layer's bytes as the socket takes.
func (y *layered) flush() error {
	for y.out != nil && y.is(writable) {
		n, err := y.loopSocket.send(y.out[y.sent:])
		switch {
		case err == syscall.EAGAIN, err == syscall.EINTR: // after EAGAIN it is not writable any more
			continue
		case err != nil:
			y.drop()
			return err
		}
		if y.sent += n; y.sent == len(y.out) {
			y.drop()
		}
	}
	y.keep()
	return nil
}

// keep moves the rest, if any, into memory of its own size, so that others can use the driver's memory.
func (y *layered) keep() {
	if cap(y.out) == maxScratch {
		rest := append([]byte(nil), y.out[y.sent:]...)
		y.drop()
		y.out = rest
	}
}

// behind reports whether the peer has left so much unread that the session does not read from it.
func (y *layered) behind() bool { return len(y.out)-y.sent > maxScratch }

// drop gives up the layer's bytes.
func (y *layered) drop() {
	if cap(y.out) == maxScratch {
		y.drv.scratch = y.out[:0]
	}
	y.out, y.sent = nil, 0
}

// maxScratch is the size of a driver's memory for layers' bytes: one read in records of TLS.
const maxScratch = bufferSize + bufferSize/8

// Write implements [net.Conn] for the layer.
func (y *layered) Write(p []byte) (int, error) {
	if y.out == nil {
		if y.out, y.drv.scratch = y.drv.scratch, nil; y.out == nil {
			y.out = make([]byte, 0, maxScratch)
		}
	}
	if cap(y.out) == maxScratch && len(y.out)+len(p) > maxScratch { // answers, on top of a write of the session
		more := append(make([]byte, 0, 2*maxScratch), y.out...)
		y.drv.scratch, y.out = y.out[:0], more
	}
	y.out = append(y.out, p...)
	return len(p), nil
}

// Read implements [net.Conn] for the layer. A peer may make the layer answer, for instance by a KeyUpdate of
// TLS. While the peer does not read these answers, the session does not read from the peer. So the pending
// bytes are at most the rest of one write of the session and the answers to one Read. Then the socket's next
// event says that there is room.
func (y *layered) Read(p []byte) (int, error) {
	if y.behind() {
		return 0, syscall.EAGAIN
	}
	if len(y.ahead) > 0 {
		n := copy(p, y.ahead)
		if y.ahead = y.ahead[n:]; len(y.ahead) == 0 {
			y.ahead = nil
		}
		return n, nil
	}
	if !y.is(wet) {
		return 0, syscall.EAGAIN
	}
	return y.recvBeneath(p)
}

// Close implements [net.Conn] for the layer. The socket belongs to the session.
func (y *layered) Close() error { return nil }

// LocalAddr implements [net.Conn] for the layer: the owner knows the addresses.
func (y *layered) LocalAddr() net.Addr { return nil }

// RemoteAddr is like LocalAddr.
func (y *layered) RemoteAddr() net.Addr { return nil }

// SetDeadline implements [net.Conn] for the layer: nothing waits.
func (y *layered) SetDeadline(time.Time) error { return nil }

// SetReadDeadline is like SetDeadline.
func (y *layered) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline is like SetDeadline.
func (y *layered) SetWriteDeadline(time.Time) error { return nil }
