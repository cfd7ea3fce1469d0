package relay

import (
	"syscall"

	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/pipe"
)

// sent has the shadow sent bytes that the session's sink has taken from a buffer.
func (m *Mirror) sent(b []byte) {
	n := min(m.piped, len(b))
	m.piped -= n
	b = b[n:]
	if m.observer != nil && len(b) > 0 {
		m.observer.Sent(b[:len(b):len(b)]) // what is behind it has not been delivered yet
	}
	m.Write(b)
}

// keep copies bytes into the pipe, or, where none is to be had, into a buffer. Those of the buffer come before those of the
// pipe.
func (m *Mirror) keep(b []byte) {
	var n int
	var err error
	if m.getPipe(minMirrorPipe) == nil {
		if n, err = m.pipe.Write(b); n < len(b) && (err == nil || wouldBlock(err)) && m.another() {
			k := 0
			k, err = m.pipe.Write(b[n:])
			n += max(k, 0)
		}
		m.runs.add(n, false)
	} else {
		n = m.store(b)
	}
	m.undelivered(len(b) - n)
	m.wait()
	switch {
	case n == len(b):
		m.recall()
	case err == nil, err == syscall.EAGAIN:
		m.end(MirrorBehind, nil)
	default:
		m.failed("write pipe for", err)
	}
}

// undelivered notes bytes that are not even in the pipe.
func (m *Mirror) undelivered(n int) { m.res.Undelivered += int64(n) }

// mirrorFills is how many fills of the session's pipe the mirror's pipe takes.
const mirrorFills = 4

// minMirrorPipe is the size that a mirror asks for if it copies: 64 small messages fit.
const minMirrorPipe = 256 << 10

// lease sees to it that there is a pipe, of so many bytes if that can be: the shadow may be that far
// behind. It ends the mirror, with n more bytes undelivered, if there is none to be had.
func (m *Mirror) lease(size, n int) bool {
	if err := m.getPipe(size); err != nil {
		m.undelivered(n)
		m.end(MirrorPipe, err)
		return false
	}
	return true
}

// getPipe leases a pipe unless there is one.
func (m *Mirror) getPipe(size int) error {
	if m.pipe != nil {
		return nil
	}
	p, err := m.drv.pipe(min(size, m.drv.relay.cfg.MaxPipeSize))
	if err != nil {
		p, err = m.drv.pipe(0)
	}
	if err == nil {
		m.pipe = p.(*pipe.Pipe)
	}
	return err
}

// wait sets the timer, unless it is.
func (m *Mirror) wait() {
	if !m.timer.Armed() {
		m.seen = m.delivered() + int64(m.held())
		m.drv.loop.Arm(&m.timer, m, m.patience)
	}
}

func (m *Mirror) held() int {
	n := m.buffered.len()
	if m.pipe != nil {
		n += m.pipe.Len()
	}
	if m.older != nil {
		n += m.older.Len()
	}
	return n
}

func (m *Mirror) delivered() int64 { return m.res.Teed + m.res.Copied }

// Expired implements [loop.Expirer]: it is called when the patience with the bytes of seen is
// over, or, after the end of the session, with the shadow.
func (m *Mirror) Expired(*loop.Timer) {
	switch {
	case m.is(mirrorLast) && m.is(mirrorShut):
		m.end(MirrorComplete, nil)
	case m.is(mirrorLast) || m.delivered() < m.seen:
		m.end(MirrorLate, nil)
	case m.held() > 0:
		m.wait()
	}
}

// Ready implements [loop.Handler].
func (m *Mirror) Ready(_ uint8, events loop.Events) {
	if m.drv == nil { // it was not started
		return
	}
	if events != 0 {
		m.socket.note(events)
	} else {
		m.state &^= mirrorRecalled
	}
	m.drain()
	m.listen()
}

// recall has the mirror called again, after the session's own bytes have been moved on.
func (m *Mirror) recall() {
	if m.is(mirrorConnected) && m.state&(mirrorRecalled|mirrorOver) == 0 && m.socket.is(writable) {
		m.state |= mirrorRecalled
		m.drv.loop.Again(m.socket.id)
	}
}

// drain has the shadow sent what the pipe holds, and the end of file after it.
func (m *Mirror) drain() {
	if m.is(mirrorOver) || !m.is(mirrorConnected) {
		return
	}
	for m.held() > 0 {
		n, err := m.deliver()
		switch {
		case err == syscall.EINTR:
		case err == syscall.EAGAIN, err == nil && n == 0:
			return
		case err != nil:
			m.failed("write", err)
			return
		}
	}
	m.giveBack()
	m.passEnd()
}

// deliver makes one attempt at sending the shadow what is held.
func (m *Mirror) deliver() (int, error) {
	if m.buffered.len() > 0 {
		return m.drainBuffer()
	}
	return m.drainPipe()
}

// giveBack returns the pipes and the buffer. The pool closes a pipe that holds bytes.
func (m *Mirror) giveBack() {
	m.dropBuffer()
	m.runs.reset()
	if m.older != nil {
		m.drv.returnPipe(m.older)
		m.older = nil
	}
	if m.pipe != nil {
		m.drv.returnPipe(m.pipe)
		m.pipe = nil
	}
}

// passEnd passes the end of file on.
func (m *Mirror) passEnd() {
	if m.state&(mirrorEnding|mirrorShut) != mirrorEnding {
		return
	}
	if err := m.socket.closeWrite(); err != nil {
		m.failed("shutdown", err)
		return
	}
	m.state |= mirrorShut
}

// answerMoves bounds the reads of answers in a turn.
const answerMoves = 16

// listen reads answers, and throws them away unless there is an observer.
func (m *Mirror) listen() {
	for range answerMoves {
		if m.is(mirrorOver|mirrorAnswered) || !m.is(mirrorConnected) {
			break
		}
		if m.observer != nil && m.socket.is(readable) && !m.drv.hearing.may(m, m.drv.loop.Now()) {
			break
		}
		n, err := m.hear()
		switch {
		case err == syscall.EAGAIN:
			return
		case err == syscall.EINTR:
		case err != nil:
			m.failed("read", err)
			return
		case n == 0:
			m.state |= mirrorAnswered
		}
	}
	switch {
	case m.is(mirrorOver):
	case m.is(mirrorAnswered) && m.is(mirrorShut):
		m.end(MirrorComplete, nil)
	case !m.is(mirrorAnswered) && m.is(mirrorConnected) && !m.is(mirrorRecalled):
		m.state |= mirrorRecalled
		m.drv.loop.Again(m.socket.id)
	}
}

// sourceEnded is the end of the mirrored direction: by its end of file, or otherwise.
func (m *Mirror) sourceEnded(eof bool) {
	switch {
	case m.is(mirrorOver):
	case eof:
		if m.observer != nil && m.state&(mirrorReplied|mirrorEnding) == 0 {
			m.observer.SentAll()
		}
		m.state |= mirrorEnding
		m.drain()
	default:
		m.end(MirrorCut, nil)
	}
}

// sessionEnded is the end of the session. Until its patience is over the mirror may deliver what it
// holds, and the shadow may answer.
func (m *Mirror) sessionEnded(eof bool) {
	m.sourceEnded(eof)
	if !m.is(mirrorOver) {
		m.state |= mirrorLast
		m.drv.loop.Arm(&m.timer, m, m.patience)
		m.recall()
	}
}

// failed ends the mirror for an error of its shadow.
func (m *Mirror) failed(op string, err error) {
	reason := MirrorError
	switch {
	case err == syscall.ETIMEDOUT:
		reason = MirrorLate
	case reasonOf(err) == ReasonReset:
		reason = MirrorReset
	}
	m.end(reason, opErrorOn(&m.socket, op, err))
}

// end ends the mirror. Its shadow is reset, unless it got everything.
func (m *Mirror) end(reason MirrorReason, err error) {
	if m.drv == nil || m.is(mirrorOver) {
		return
	}
	m.state |= mirrorOver
	m.drv.loop.Disarm(&m.timer)
	m.res.Undelivered += int64(m.held())
	m.giveBack()
	if m.is(mirrorConnected) {
		if reason != MirrorComplete {
			m.socket.abort()
		}
		m.close()
	}
	m.drv.mirrors--
	m.res.Reason, m.res.Err = reason, err
	m.shadowEnded(reason)
	m.owner.MirrorEnded(m, m.res)
}

func (m *Mirror) close() {
	if m.drv != nil { // that was started; the registration of a socket that is closed is the loop's memory alone
		m.drv.loop.Drop(m.socket.id)
	}
	m.socket.close()
}
