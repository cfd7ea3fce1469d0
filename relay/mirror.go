package relay

import (
	"errors"
	"syscall"
	"time"

	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/pipe"
	"github.com/penstock/penstock/relay/driver"
)

// A Mirror also sends the bytes of one side of a session on a loop to a second socket, the shadow: by tee(2) if the
// session splices, so that they do not enter the process, and by a second write if it copies. The session never waits
// for it: a shadow that cannot keep up ends its mirror.
//
// The bytes that the shadow has not taken yet are in at most two leased pipes, or, if they are copied and there is no pipe, in a
// buffer of 256 KiB at most; an idle mirror has none of them.
// Copied bytes go to the shadow once the session's sink has taken them, spliced bytes
// before. The shadow gets the source's end of file after its last byte, and is reset if
// the source was. The shadow's answers are read and thrown away, unless an observer sees them
// ([Mirror.Observe]). A mirror outlives its session by its patience at most.
//
// A Mirror belongs to its loop's goroutine. It may be used again after its end and its session's.
type Mirror struct {
	drv      *Driver
	owner    MirrorOwner
	observer driver.MirrorObserver // nil: there is none, or no more
	patience time.Duration
	timer    loop.Timer
	socket   loopSocket   // owned; fd is -1 before Connected and after the end
	runs     mirrorRuns   // of the bytes of older and pipe
	pipe     *pipe.Pipe   // leased while it holds bytes that the shadow has not taken; else nil
	seen     int64        // how many bytes the shadow had been given when the timer was set
	piped    int          // bytes that were teed, and are delivered to the session's sink from a buffer
	buffered mirrorBuffer // bytes that came before the pipe's, when no pipe was available
	older    *pipe.Pipe   // leased, full when it was, drained before pipe; nil: there is none
	teed     int          // bytes at the head of the session's pipe that the mirror has
	res      driver.MirrorResult
	heard    uint32 // the round of the driver's hearing in which it has read
	state    mirrorState
}

// A MirrorOwner is notified of the end of its mirror.
type MirrorOwner interface {
	// MirrorEnded is called on the loop's goroutine, once, when the shadow's socket is closed.
	MirrorEnded(m *Mirror, res driver.MirrorResult)
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

// StartMirror begins a mirror while the connection to its shadow is being made. The owner then passes the mirror with
// the session's socket ([Socket.Mirror]), and later calls [Mirror.Connected] or [Mirror.Refused]. The mirror ends if
// bytes stay undelivered for patience (at least once, at most twice this time), counted from the first byte, whether
// the shadow is connected or not. Without a call of Connected or Refused the mirror ends with [driver.MirrorLate], when
// the patience after the end of its session is over.
func (d *Driver) StartMirror(m *Mirror, patience time.Duration, owner MirrorOwner) {
	*m = Mirror{drv: d, owner: owner, patience: patience, socket: loopSocket{fd: -1}}
	d.mirrors++
}

// errNoMirror is the error of a mirror that a session was given before StartMirror.
var errNoMirror = errors.New("penstock: relay: start: the Mirror was not started")

// Connected gives the mirror the socket of its shadow: connected, non-blocking, and registered with the loop. The
// mirror owns it afterwards. If the mirror has ended meanwhile, or was not started, it closes the socket.
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

// Refused ends the mirror, because the connection to its shadow failed. It does nothing before
// StartMirror and after the end.
func (m *Mirror) Refused(err error) { m.end(driver.MirrorConnect, err) }

// Cut ends the mirror at once, and resets its shadow unless the shadow has received everything. It may be called
// within any callback, and does nothing before StartMirror and after the end.
func (m *Mirror) Cut() {
	if m.is(mirrorShut) {
		m.end(driver.MirrorComplete, nil)
		return
	}
	m.end(driver.MirrorCut, nil)
}

// Write sends the shadow additional bytes that the session does not read, such as bytes that
// were read before the session. They are copied. Their order is the order of the calls and
// of the session's bytes. It does nothing after the end, nor before StartMirror.
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
func (m *Mirror) Result() driver.MirrorResult { return m.res }

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

// setMirror mirrors the bytes of a socket, including bytes read before. With a layer these are the
// bytes inside the layer, and rewritten bytes are mirrored as rewritten. The mirror's observer sees
// the bytes of back, the opposite direction.
func (d *direction) setMirror(s *Socket, back *direction) {
	m := s.Mirror
	if m == nil || m.is(mirrorOver) {
		return
	}
	if m.drv == nil {
		m.drv, m.state, m.res = sessionOf(d).drv, mirrorOver, driver.MirrorResult{Reason: driver.MirrorError, Err: errNoMirror}
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

// Observe adds an observer of the bytes of the mirror's session. It is called between
// [Driver.StartMirror] and the start of the session. The observer does not see the session's bytes
// of [Socket.Moved]. The answers of the session's other side are then copied, not spliced
// (FallbackCompare), until the observer wants no further calls or the mirror ends.
func (m *Mirror) Observe(o driver.MirrorObserver) { m.observer = o }

// An observing is the state of a direction that carries answers for an observer to see.
type observing struct {
	mirror *Mirror
	mode   mode // of the direction before
	pinned bool // likewise
}

// observe lets the observer of a mirror see a direction's bytes.
func (d *direction) observe(m *Mirror) {
	d.rareState().answers = &observing{mirror: m, mode: d.mode, pinned: d.is(pinned)}
	d.set(observed, true)
	if d.mode == rewriting { // its bytes are copied anyway, and stay rewritten
		return
	}
	if d.mode != copying || !d.is(pinned) {
		d.fallback(FallbackCompare)
	}
	d.mode = copying
	d.set(pinned, true)
}

// observer returns the mirror with an observer of the direction's bytes, nil if there is none any
// more. The direction splices again then, if it may.
func (d *direction) observer() *Mirror {
	if !d.is(observed) {
		return nil
	}
	o := d.rareState()
	if o.answers.mirror.observer != nil {
		return o.answers.mirror
	}
	d.set(observed, false)
	d.set(pinned, o.answers.pinned)
	d.switchTo(o.answers.mode)
	o.answers = nil
	return nil
}

// show shows bytes that the sink has taken from a buffer to the mirror and the observer.
func (d *direction) show(b []byte) {
	if m := d.mirror(); m != nil {
		m.sent(b)
	}
	if m := d.observer(); m != nil {
		m.answered(b)
	}
}

// showEnd shows the end of the direction to the mirror and the observer.
func (d *direction) showEnd(eof bool) {
	if m := d.mirror(); m != nil {
		m.sourceEnded(eof)
	}
	if m := d.observer(); m != nil {
		m.answersEnded(eof && d.is(eofSeen))
	}
}

// answered shows the observer bytes of the session's other side.
func (m *Mirror) answered(b []byte) {
	if o := m.observer; !o.Answered(b[:len(b):len(b)]) {
		m.hadEnough(o)
	}
}

// hear reads answers of the shadow, and shows them to the observer.
func (m *Mirror) hear() (n int, err error) {
	if m.observer == nil {
		n, err = m.socket.discard(m.drv.warm.b)
	} else {
		n, err = m.socket.recv(m.drv.warm.b[:min(hearBytes, len(m.drv.warm.b))])
		m.drv.hearing.bytes += max(n, 0)
	}
	m.res.Answered += int64(max(n, 0))
	if o := m.observer; n > 0 && o != nil && !o.ShadowAnswered(m.drv.warm.b[:n:n]) {
		m.hadEnough(o)
	}
	return n, err
}

// hadEnough ends the observation when the observer wants no further calls, unless the observer has ended the mirror
// itself meanwhile.
func (m *Mirror) hadEnough(o driver.MirrorObserver) {
	if m.observer == o {
		m.dismiss(false)
	}
}

// answersEnded is the end of the answers of the session's other side.
func (m *Mirror) answersEnded(eof bool) {
	m.state |= mirrorReplied
	if !eof || m.is(mirrorOver) { // which is by the shadow's end of file, as there is an observer
		m.dismiss(eof)
	}
}

// shadowEnded is the end of the mirror, and so of the shadow's answers.
func (m *Mirror) shadowEnded(reason driver.MirrorReason) {
	seen := reason == driver.MirrorComplete && m.is(mirrorAnswered)
	if m.observer != nil && (!seen || m.is(mirrorReplied)) {
		m.dismiss(seen)
	}
}

// dismiss is the end of observing.
func (m *Mirror) dismiss(complete bool) {
	o := m.observer
	m.observer = nil
	o.Ended(complete)
}

// How much observers see of each shadow, and of all shadows, in one turn of the loop. The rest
// waits in the kernel.
const (
	hearBytes    = 16 << 10
	hearAllBytes = 64 << 10
)

// A hearing shares the loop's turns among mirrors with observers of their shadows' answers. In a
// round each of them may read once. A round takes as many turns as it needs for all that wait.
type hearing struct {
	turn  int64  // the loop's
	bytes int    // that were read in it
	round uint32 // never 0
	short bool   // a mirror waits for its first read of the round
}

// may reports whether a mirror may read now.
func (h *hearing) may(m *Mirror, turn int64) bool {
	if h.turn != turn || h.round == 0 {
		h.turn, h.bytes = turn, 0
		if !h.short {
			if h.round++; h.round == 0 {
				h.round++
			}
		}
		h.short = false
	}
	if m.heard == h.round {
		return false
	}
	if h.bytes > hearAllBytes-hearBytes {
		h.short = true
		return false
	}
	m.heard = h.round
	return true
}
