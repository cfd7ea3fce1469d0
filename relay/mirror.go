package relay

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/pipe"
)

// A Mirror has a second socket, the shadow's, sent the bytes that one side of a session on a
// loop sends: by tee(2) where the session splices, so that they do not enter the process, and
// by a write of their own where it copies. The session never waits for it, and is not affected
// by it, but for the moments in which that has no room: a shadow that cannot keep up ends its mirror.
//
// The bytes that the shadow has not taken yet are in at most two leased pipes, or, if they are copied and there is no pipe, in a
// buffer of 256 KiB at most; an idle mirror has none of them.
// Bytes that are copied go to the shadow once the session's sink has taken them, those that are
// spliced before. The shadow gets the source's end of file after its last byte, and is reset if
// the source was. The shadow's answers are read and thrown away, unless an observer sees them
// ([Mirror.Observe]). A mirror outlives its session by its patience at most.
//
// A Mirror belongs to its loop's goroutine. It may be used again after its end and its session's.
type Mirror struct {
	drv      *Driver
	owner    MirrorOwner
	observer MirrorObserver // nil: there is none, or no more
	patience time.Duration
	timer    loop.Timer
	socket   loopSocket   // owned; fd is -1 before Connected and after the end
	runs     mirrorRuns   // of the bytes of older and pipe
	pipe     *pipe.Pipe   // leased while it holds bytes that the shadow has not taken; else nil
	seen     int64        // how many bytes the shadow had been given when the timer was set
	piped    int          // bytes that were teed, and are delivered to the session's sink from a buffer
	buffered mirrorBuffer // bytes that came before those of the pipe, where none was to be had for them
	older    *pipe.Pipe   // leased, full when it was, drained before pipe; nil: there is none
	teed     int          // bytes at the head of the session's pipe that the mirror has
	res      MirrorResult
	heard    uint32 // the round of the driver's hearing in which it has read
	state    mirrorState
}

// A MirrorOwner is notified of the end of its mirror.
type MirrorOwner interface {
	// MirrorEnded is called on the loop's goroutine, once, when the shadow's socket is closed.
	MirrorEnded(m *Mirror, res MirrorResult)
}

// MirrorResult is the result of a mirror.
type MirrorResult struct {
	Reason MirrorReason
	// Teed and Copied are the bytes that the shadow's socket took: those of which the mirror got a copy by tee(2), which
	// it never had in the memory of this process, and those that were written from there.
	Teed, Copied int64
	// Undelivered is how many bytes of those given to the mirror its shadow has not taken. None
	// that came after the mirror's end are among them.
	Undelivered int64
	// Answered is how many bytes the shadow has answered.
	Answered int64
	Err      error // of Connect, Reset and Error; else nil
}

// MirrorReason is why a mirror ended.
type MirrorReason uint8

const (
	// MirrorNone: it has not ended.
	MirrorNone MirrorReason = iota
	// MirrorComplete: the shadow got all bytes, and the source's end.
	MirrorComplete
	// MirrorBehind: its pipes could not take all bytes that the session had read.
	MirrorBehind
	// MirrorLate: bytes were undelivered for the patience of the mirror, or in the kernel; or the shadow has not got
	// everything, or was not even connected, when the patience was over after the session's end.
	MirrorLate
	// MirrorConnect: the shadow could not be connected to.
	MirrorConnect
	// MirrorReset: the shadow has reset its connection, or closed it.
	MirrorReset
	// MirrorPipe: no pipe was to be had for bytes that are spliced.
	MirrorPipe
	// MirrorCut: the source was reset, or the session ended otherwise than by the source's end
	// of file; the shadow is reset.
	MirrorCut
	// MirrorError: reading or writing failed otherwise.
	MirrorError
)

var mirrorReasonNames = [...]string{"running", "complete", "behind", "late", "connect", "reset", "pipe", "cut", "error"}

// String returns the reason in one word.
func (r MirrorReason) String() string {
	if int(r) < len(mirrorReasonNames) {
		return mirrorReasonNames[r]
	}
	return fmt.Sprintf("reason(%d)", uint8(r))
}

type mirrorState uint16

const (
	mirrorConnected mirrorState = 1 << iota
	mirrorEnding                // the source's end was seen
	mirrorShut                  // and passed on
	mirrorAnswered              // the shadow's end of file was read
	mirrorLast                  // its session has ended
	mirrorOver                  // it has ended
	mirrorRecalled              // it is to be called again
	mirrorReplied               // the answers of its other side have ended
)

func (m *Mirror) is(s mirrorState) bool { return m.state&s != 0 }

// StartMirror begins a mirror whose shadow is being connected to: its owner calls
// [Mirror.Connected] or [Mirror.Refused] later, and passes the mirror with the session's socket
// before ([Socket.Mirror]). Bytes are undelivered for patience at least before the mirror ends
// for them, and for twice that at most; that counts from the first byte, connected or not. A mirror that is given neither
// Connected nor Refused ends with [MirrorLate] when the patience is over after its session's end, even without a byte.
func (d *Driver) StartMirror(m *Mirror, patience time.Duration, owner MirrorOwner) {
	*m = Mirror{drv: d, owner: owner, patience: patience, socket: loopSocket{fd: -1}}
	d.mirrors++
}

// errNoMirror is the error of a mirror that a session was given before StartMirror.
var errNoMirror = errors.New("penstock: relay: start: the Mirror was not started")

// Connected gives the mirror its shadow's socket, which it owns from now on: connected,
// non-blocking, and registered with the loop. If the mirror has ended meanwhile, or was not started, it closes the
// socket.
func (m *Mirror) Connected(s Socket) {
	m.socket = newSocket(s)
	if m.drv == nil || m.is(mirrorOver) {
		m.close()
		return
	}
	m.state |= mirrorConnected
	m.socket.giveUpAfter(m.patience)
	m.drv.loop.Hand(s.ID, m)
	m.socket.note(s.Events)
	if m.drv.stepping { // in a callback: the memory that answers are read into is in use
		m.state |= mirrorRecalled
		m.drv.loop.Again(s.ID)
		return
	}
	m.drain()
	m.listen()
}

// Refused ends the mirror, whose shadow could not be connected to. It does nothing before StartMirror and after the end.
func (m *Mirror) Refused(err error) { m.end(MirrorConnect, err) }

// Cut ends the mirror at once, and resets its shadow, unless that has got everything. It may be called within any
// callback, and does nothing before StartMirror and after the end.
func (m *Mirror) Cut() {
	if m.is(mirrorShut) {
		m.end(MirrorComplete, nil)
		return
	}
	m.end(MirrorCut, nil)
}

// Write has the shadow sent bytes that its session does not read, such as those that were read
// before it. They are copied, and come in the order of the calls and of the session's bytes.
// It does nothing after the end, nor before StartMirror.
func (m *Mirror) Write(b []byte) {
	if m.drv == nil || m.is(mirrorOver) || len(b) == 0 {
		return
	}
	if m.pipe == nil && m.buffered.len() == 0 && m.is(mirrorConnected) {
		n, err := m.socket.send(b)
		if err != nil && err != syscall.EAGAIN && err != syscall.EINTR {
			m.failed("write", err)
			return
		}
		m.res.Copied += int64(n)
		b = b[n:]
	}
	if len(b) > 0 {
		m.keep(b)
	}
}

// Result returns what the mirror has done so far; after its end, the final result.
func (m *Mirror) Result() MirrorResult { return m.res }

// mirror returns the mirror of a direction, nil if there is none any more.
func (d *direction) mirror() *Mirror {
	if !d.is(mirrored) {
		return nil
	}
	o := d.rareState()
	if o.mirror.is(mirrorOver) {
		o.mirror = nil
		d.set(mirrored, false)
	}
	return o.mirror
}

// setMirror has the bytes of a socket mirrored, those read before included. Of a layer's they are
// none of the session's, and those that are rewritten are mirrored as they are then. The mirror's observer sees
// the bytes of back, the opposite direction.
func (d *direction) setMirror(s *Socket, back *direction) {
	m := s.Mirror
	if m == nil || m.is(mirrorOver) {
		return
	}
	if m.drv == nil {
		m.drv, m.state, m.res = sessionOf(d).drv, mirrorOver, MirrorResult{Reason: MirrorError, Err: errNoMirror}
		return
	}
	d.set(mirrored, true)
	d.rareState().mirror = m
	if m.observer != nil {
		back.observe(m)
	}
	if s.Layer == nil && s.Rewriter == nil && s.Transform == nil {
		m.sent(s.Ahead)
	}
}
