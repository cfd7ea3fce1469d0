package relay

import (
	"errors"
	"io"
	"net"
	"reflect"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/penstock/penstock/loop"
)

// A leg is one of the two ends of a session.
type leg struct {
	conn  net.Conn // as given; the session closes it
	state *legState

	// The reader and writer beneath the wrappers; until the session has unwrapped conn, both are conn itself.
	// Session.cutting guards them, except from the goroutine that unwraps.
	src, dst end

	closed bool
	onLoop bool // refused, because it belongs to a loop; left alone
}

// A legState is the state of one connection that both directions need.
type legState struct {
	shut atomic.Bool                 // set before the end of file is passed on to it
	gone atomic.Pointer[writeFailed] // a Write of it has failed
	busy atomic.Bool                 // a Write of it has not returned, or gone does not have its error yet
	ours bool                        // only the session writes to it, or ends it
	over bool                        // its owner had ended it before the session
	// stopped is set before the session ends the leg's reads. A wrapper may answer that by io.EOF, which is then
	// no end of file.
	stopped atomic.Bool
}

// newLeg returns the leg of conn. It calls no method of a wrapper that may wait. If NetConn panics, the panic goes
// on when the session begins, after both connections were closed.
func (s *Session) newLeg(conn net.Conn) (l leg) {
	if isNil(conn) {
		return leg{closed: true}
	}
	defer func() {
		if p := recover(); p != nil {
			s.notePanic(p)
		}
	}()
	l = leg{conn: conn, state: &legState{ours: true}}
	l.src = newEnd(conn, l.state, &unwrapped{})
	l.dst = newEnd(conn, l.state, &unwrapped{}) // each direction needs its own descriptor
	if servedByLoop(innermost(conn)) {
		return leg{closed: true, onLoop: true}
	}
	l.state.look(conn)
	return l
}

// wrapped reports whether wrappers have to be asked for the ends.
func (l *leg) wrapped() bool {
	_, is := l.conn.(Unwrapper)
	return is
}

// servedByLoop reports whether an end is a connection that only its handler on a loop may use.
func servedByLoop(end any) bool {
	_, is := end.(*loop.Conn)
	return is
}

// absent reports whether there is no connection that can be joined.
func (l *leg) absent() bool { return l.conn == nil }

// waitsInside reports whether bytes of the leg are moved by its own Read or Write, which may wait.
func (l *leg) waitsInside() bool { return l.src.desc == nil || l.dst.desc == nil }

// isNil reports whether c is nil, or a nil pointer.
func isNil(c any) bool {
	v := reflect.ValueOf(c)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}

// longAgo is a deadline that has passed on any clock.
var longAgo = time.Unix(1, 0)

type deadliner interface{ SetDeadline(time.Time) error }

// interrupt makes every Read, Write and wait of the leg fail from now on, and reports whether that was possible.
func (l *leg) interrupt() bool {
	if l.onLoop {
		return true
	}
	l.state.stopped.Store(true)
	err := l.conn.SetDeadline(longAgo)
	for _, end := range []any{l.src.rw, l.dst.rw} {
		if d, ok := end.(deadliner); ok && isPlain(end) {
			err = errors.Join(err, d.SetDeadline(longAgo))
		}
	}
	return err == nil || errors.Is(err, net.ErrClosed)
}

// stopReads makes every Read of the leg fail from now on, if it has deadlines.
func (l *leg) stopReads() {
	l.state.stopped.Store(true)
	_ = l.conn.SetReadDeadline(longAgo)
	if c, ok := l.src.rw.(interface{ SetReadDeadline(time.Time) error }); ok && isPlain(c) {
		_ = c.SetReadDeadline(longAgo)
	}
}

// stopWrites makes every Write of the leg fail from now on, if it has deadlines.
func (l *leg) stopWrites() {
	_ = l.conn.SetWriteDeadline(longAgo)
	if c, ok := l.dst.rw.(interface{ SetWriteDeadline(time.Time) error }); ok && isPlain(c) {
		_ = c.SetWriteDeadline(longAgo)
	}
}

// abort resets the connection and returns how much of its send queue is lost. sent: also what was sent, and not
// acknowledged.
func (l *leg) abort(sent bool) (lost int64) {
	if d := l.dst.desc; d != nil && !l.closed {
		_ = d.raw.Control(func(fd uintptr) {
			d.fd = int(fd)
			lost = d.untaken(sent)
		})
	}
	l.reset()
	return lost
}

// mayTakeLeave lets a wrapper's Close write its last words, such as a websocket's close frame: the deadlines that have ended its
// calls would forbid it.
func (l *leg) mayTakeLeave() {
	if !l.closed && !l.absent() && !isPlain(l.conn) && l.state.stopped.Load() {
		_ = l.conn.SetDeadline(time.Now().Add(closeGrace))
	}
}

// close closes the connection, once.
func (l *leg) close() {
	if !l.closed && !l.absent() {
		l.closed = true
		_ = l.conn.Close()
	}
}

// A lingerer can be set to reset its connection when it is closed.
type lingerer interface {
	SetLinger(sec int) error
	Close() error
}

// reset aborts the connection, so that the peer gets RST and not a clean end (socket(7): SO_LINGER with a
// linger time of 0). It closes the TCP connection inside a TLS connection first, so that TLS sends no orderly
// end. A connection that knows no reset is left to close.
func (l *leg) reset() {
	for _, c := range []any{l.dst.rw, l.conn} {
		inner, ok := innermost(c).(lingerer)
		if !ok {
			continue
		}
		// SetLinger fails only on a socket that is gone already.
		_ = inner.SetLinger(0)
		if !same(inner, l.conn) {
			_ = inner.Close()
		}
		return
	}
}

// transport returns the leg's connection, or what is beneath its wrappers, whichever has a socket. The caller holds
// Session.cutting, or both directions have stopped.
func (l *leg) transport() any {
	for _, c := range []any{l.dst.rw, l.conn, l.src.rw} {
		if _, ok := innermost(c).(syscall.Conn); ok {
			return c
		}
	}
	return l.conn
}

// innermost follows NetConn, a method of *tls.Conn for instance, down to the transport. It returns nil if a
// wrapper has none.
func innermost(c any) any {
	for range maxUnwraps {
		n, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		if c = n.NetConn(); isNil(c) {
			return nil
		}
	}
	return c
}

// An end is the source (an io.Reader) or the sink (an io.Writer) of a direction.
type end struct {
	rw   any
	desc *descriptor // nil if the end is moved by its own Read or Write
	leg  *legState
	framing
}

// newEnd returns the source or sink that rw is, after u has removed its wrappers.
func newEnd(rw any, leg *legState, u *unwrapped) end {
	e := end{rw: rw, desc: newDescriptor(rw, leg), leg: leg, framing: streaming}
	if e.desc == nil {
		e.framing = framingOf(rw)
	}
	if e.framing == unknown && u.stream && !isFile(rw) {
		e.framing = streaming
	}
	return e
}

// connect gives d its ends, thresholds, leases and first mode. If the source is read by its own Read, the
// destination is written by its own Write even if it has a descriptor: the direction waits in Read, and must
// hold nothing there. A non-nil err is returned in place of the first read.
func (r *Relay) connect(d *direction, ends *pair, env *environment, from, to end, err error) {
	ends.env, ends.copied = env, bufferSize
	d.link, d.pipeSize = ends, defaultPipe
	switch {
	case from.desc == nil || err != nil:
		sizes := r.readSizes(from, to, d.is(oneWay))
		ends.source = &opaqueSource{
			r: wholeMessages(from.rw.(io.Reader)), leg: from.leg, framing: from.framing,
			buffer: waitingBuffer{sizes.first, sizes}, err: err,
		}
		to.desc = nil
	case to.framing != streaming:
		ends.copied = copyBuffer
		fallthrough
	default:
		ends.source = from.desc
	}
	if to.desc == nil {
		ends.sink = &opaqueSink{w: to.rw.(io.Writer), leg: to.leg}
		d.set(waits, true)
	} else {
		ends.sink = to.desc
	}
	d.chooseMode(r, isPlain(from.rw) && isPlain(to.rw))
}

// chooseMode sets the first mode, and whether it may change.
func (d *direction) chooseMode(r *Relay, plain bool) {
	d.set(pinned, true)
	switch {
	case d.is(waits) && (!plain || r.pipes != nil):
		d.fallback(FallbackWrapped)
	case r.cfg.Engine == EngineCopy:
	case d.is(waits) || r.pipes == nil:
		d.fallback(FallbackUnsupported)
	case r.cfg.Engine == EngineSplice:
		d.mode = splicing
	default:
		d.set(pinned, false)
	}
}
