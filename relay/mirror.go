package relay

import (
	"errors"
	"syscall"
	"time"

	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/pipe"
	"github.com/penstock/penstock/relay/driver"
)

// A Mirror also sends the bytes of one side of a session on a loop to a second socket, the shadow. A session
// that splices mirrors by tee(2), so that the bytes do not enter the process; a session that copies mirrors by
// a second write. The session never waits for its mirror: a shadow that cannot keep up ends the mirror.
//
// Bytes that the shadow has not taken yet are in at most two leased pipes; if copied bytes find no pipe, they
// are in a buffer of at most 256 KiB. An idle mirror has none of them. Copied bytes go to the shadow after the
// session's sink has taken them, spliced bytes before. The shadow gets the source's end of file after its last
// byte, and is reset if the source was. The shadow's answers are read and thrown away, unless an observer sees
// them ([Mirror.Observe]). A mirror outlives its session by its patience at most.
//
// A Mirror belongs to its loop's goroutine. It may be used again after both its end and its session's.
type Mirror struct {
	drv      *Driver
	owner    MirrorOwner
	observer driver.MirrorObserver // nil: there is none, or none any more
	patience time.Duration
	timer    loop.Timer
	socket   loopSocket   // owned; fd is -1 before Connected and after the end
	runs     mirrorRuns   // how the bytes of older and pipe came there
	pipe     *pipe.Pipe   // leased while it holds bytes that the shadow has not taken; else nil
	seen     int64        // bytes given to the shadow when the timer was set
	piped    int          // bytes that were teed, and are now in the session's buffer: the mirror does not get them again
	buffered mirrorBuffer // bytes from before pipe, when no pipe was available
	older    *pipe.Pipe   // leased when pipe was full, and drained before it; nil: there is none
	teed     int          // bytes at the head of the session's pipe that were teed: the mirror does not get them again
	res      driver.MirrorResult
	heard    uint32 // the round of the driver's hearing in which it last read
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
	mirrorShut                  // the source's end was passed on
	mirrorAnswered              // the shadow's end of file was read
	mirrorLast                  // its session has ended
	mirrorOver                  // the mirror has ended
	mirrorRecalled              // the loop will call it in its next turn
	mirrorReplied               // the answers of the session's other side have ended
)

func (m *Mirror) is(s mirrorState) bool { return m.state&s != 0 }

// StartMirror begins a mirror while the connection to its shadow is being made. The owner then passes the mirror
// with the session's socket ([Socket.Mirror]), and later calls [Mirror.Connected] or [Mirror.Refused]. The mirror
// ends if bytes stay undelivered for patience, or at most twice that time, even if the shadow is not connected
// yet. Without Connected or Refused it ends with [driver.MirrorLate], when patience is over after the session's
// end.
func (d *Driver) StartMirror(m *Mirror, patience time.Duration, owner MirrorOwner) {
	*m = Mirror{drv: d, owner: owner, patience: patience, socket: loopSocket{fd: -1}}
	d.mirrors++
}

// errNoMirror is the error of a mirror that was given to a session before StartMirror.
var errNoMirror = errors.New("penstock: relay: start: the Mirror was not started")

// Connected gives the mirror its shadow's socket: connected, non-blocking, and registered with the loop. The
// mirror owns it afterwards. A mirror that has ended or was not started closes the socket.
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
	if m.drv.stepping { // in a callback: warm, into which answers are read, is in use
		m.state |= mirrorRecalled
		m.drv.loop.Again(s.ID)
		return
	}
	m.drain()
	m.listen()
}

// Refused ends the mirror because the connection to its shadow failed. It does nothing before StartMirror and
// after the end.
func (m *Mirror) Refused(err error) { m.end(driver.MirrorConnect, err) }

// Cut ends the mirror at once, and resets its shadow unless the shadow has everything. It may be called within
// any callback, and does nothing before StartMirror and after the end.
func (m *Mirror) Cut() {
	if m.is(mirrorShut) {
		m.end(driver.MirrorComplete, nil)
		return
	}
	m.end(driver.MirrorCut, nil)
}

// Write sends the shadow additional bytes that the session does not read, such as bytes that were read before
// the session. They are copied, and keep their place among the session's bytes. Write does nothing before
// StartMirror and after the end.
func (m *Mirror) Write(b []byte) {
	if m.drv == nil || m.is(mirrorOver) || len(b) == 0 {
		return
	}
	if m.pipe == nil && m.buffered.len() == 0 && m.is(mirrorConnected) {
		n, err := m.socket.send(b)
		if err != nil && err != syscall.EAGAIN && err != syscall.EINTR {
			m.undelivered(len(b))
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

// Result returns what the mirror has done so far, and after its end the final result.
func (m *Mirror) Result() driver.MirrorResult { return m.res }

// mirror returns the mirror of a direction, or nil if it has none or no longer.
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

// setMirror mirrors the bytes of a socket, including bytes read before: with a layer the bytes inside the
// layer, with a Transform the transformed bytes. The mirror's observer sees the bytes of back, the opposite
// direction.
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
	if s.Layer == nil && s.Transform == nil {
		m.sent(s.Ahead)
	}
}

// Observe adds an observer of the bytes of the mirror's session. Call it between [Driver.StartMirror] and the
// start of the session. The observer does not see the bytes of [Socket.Moved]. The answers of the session's
// other side are copied, not spliced (FallbackCompare), until the observer wants no further calls or the mirror
// ends.
func (m *Mirror) Observe(o driver.MirrorObserver) { m.observer = o }

// An observing is the state of a direction with answers that an observer sees.
type observing struct {
	mirror *Mirror
	mode   mode // of the direction before it was observed
	pinned bool // as mode
}

// observe lets the mirror's observer see a direction's bytes.
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

// observer returns the mirror that has an observer of the direction's bytes. If there is none any more it
// returns nil, and the direction may splice again.
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

// hear reads answers of the shadow, and shows them to the observer, if any.
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

// hadEnough dismisses an observer that wants no further calls, unless it has ended the mirror meanwhile.
func (m *Mirror) hadEnough(o driver.MirrorObserver) {
	if m.observer == o {
		m.dismiss(false)
	}
}

// answersEnded notes the end of the answers of the session's other side.
func (m *Mirror) answersEnded(eof bool) {
	m.state |= mirrorReplied
	if !eof || m.is(mirrorOver) { // a mirror that is over has an observer only if the shadow's end of file has ended it
		m.dismiss(eof)
	}
}

// shadowEnded tells the observer that the mirror, and so the shadow's answers, have ended.
func (m *Mirror) shadowEnded(reason driver.MirrorReason) {
	seen := reason == driver.MirrorComplete && m.is(mirrorAnswered)
	if m.observer != nil && (!seen || m.is(mirrorReplied)) {
		m.dismiss(seen)
	}
}

// dismiss ends the observation.
func (m *Mirror) dismiss(complete bool) {
	o := m.observer
	m.observer = nil
	o.Ended(complete)
}

// Observers see at most so many bytes of each shadow, and of all shadows, in one turn of the loop. The rest
// waits in the kernel.
const (
	hearBytes    = 16 << 10
	hearAllBytes = 64 << 10
)

// A hearing shares the loop's turns among the observed mirrors. In a round each of them may read once. A round
// takes as many turns as the waiting mirrors need.
type hearing struct {
	turn  int64  // time of the loop's turn
	bytes int    // read in this turn
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
