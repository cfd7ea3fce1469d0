package relay

import (
	"math/bits"
	"syscall"

	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/pipe"
	"github.com/penstock/penstock/relay/driver"
)

// sent sends the shadow the bytes that the session's sink has taken from a buffer.
func (m *Mirror) sent(b []byte) {
	n := min(m.piped, len(b))
	m.piped -= n
	b = b[n:]
	if m.observer != nil && len(b) > 0 {
		m.observer.Sent(b[:len(b):len(b)]) // the bytes behind b are not delivered yet
	}
	m.Write(b)
}

// keep copies bytes into the pipe, or into a buffer if no pipe is available. The buffer's bytes come before the pipe's.
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
		m.end(driver.MirrorBehind, nil)
	default:
		m.failed("write pipe for", err)
	}
}

// undelivered counts bytes that did not even get into the pipe.
func (m *Mirror) undelivered(n int) { m.res.Undelivered += int64(n) }

// mirrorFills is how many fills of the session's pipe the mirror's pipe takes.
const mirrorFills = 4

// minMirrorPipe is the size of pipe that a copying mirror asks for: 64 small messages fit.
const minMirrorPipe = 256 << 10

// lease leases a pipe unless the mirror has one. Its size, if possible size bytes, is how far the shadow may fall
// behind. If no pipe is available it ends the mirror, with n more bytes undelivered.
func (m *Mirror) lease(size, n int) bool {
	if err := m.getPipe(size); err != nil {
		m.undelivered(n)
		m.end(driver.MirrorPipe, err)
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

// wait sets the timer, unless it is set.
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

// Expired implements [loop.Expirer]: the patience for undelivered bytes is over, or, after the end of the session,
// the patience with the shadow.
func (m *Mirror) Expired(*loop.Timer) {
	switch {
	case m.is(mirrorLast) && m.is(mirrorShut):
		m.end(driver.MirrorComplete, nil)
	case m.is(mirrorLast) || m.delivered() < m.seen:
		m.end(driver.MirrorLate, nil)
	case m.held() > 0:
		m.wait()
	}
}

// Ready implements [loop.Handler].
func (m *Mirror) Ready(_ uint8, events loop.Events) {
	if m.drv == nil { // not started
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

// recall makes the loop call the mirror again, after the session's own bytes have been moved on.
func (m *Mirror) recall() {
	if m.is(mirrorConnected) && m.state&(mirrorRecalled|mirrorOver) == 0 && m.socket.is(writable) {
		m.state |= mirrorRecalled
		m.drv.loop.Again(m.socket.id)
	}
}

// drain sends the shadow all bytes that are held, and then the end of file.
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

// deliver tries once to send the shadow bytes that are held.
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
		m.failed(opHalfClose, err)
		return
	}
	m.state |= mirrorShut
}

// answerMoves bounds the reads of answers in one turn.
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
		m.end(driver.MirrorComplete, nil)
	case !m.is(mirrorAnswered) && m.is(mirrorConnected) && !m.is(mirrorRecalled):
		m.state |= mirrorRecalled
		m.drv.loop.Again(m.socket.id)
	}
}

// sourceEnded notes the end of the mirrored direction; eof says that it was an end of file.
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
		m.end(driver.MirrorCut, nil)
	}
}

// sessionEnded is called at the end of the session. Until the patience is over, the mirror may
// deliver the bytes that it holds, and the shadow may answer.
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
	reason := driver.MirrorError
	switch {
	case err == syscall.ETIMEDOUT:
		reason = driver.MirrorLate
	case reasonOf(err) == ReasonReset:
		reason = driver.MirrorReset
	}
	m.end(reason, opErrorOn(&m.socket, op, err))
}

// end ends the mirror. Its shadow is reset, unless it has everything.
func (m *Mirror) end(reason driver.MirrorReason, err error) {
	if m.drv == nil || m.is(mirrorOver) {
		return
	}
	m.state |= mirrorOver
	m.drv.loop.Disarm(&m.timer)
	m.res.Undelivered += int64(m.held())
	m.giveBack()
	if m.is(mirrorConnected) {
		if reason != driver.MirrorComplete {
			m.socket.abort(true)
		}
		m.close()
	}
	m.drv.mirrors--
	m.res.Reason, m.res.Err = reason, err
	m.shadowEnded(reason)
	m.owner.MirrorEnded(m, m.res)
}

func (m *Mirror) close() {
	if m.drv != nil { // a started mirror has a registered socket
		m.drv.loop.Drop(m.socket.id)
	}
	m.socket.close()
}

// The mirror may take only a part of the bytes in a session's pipe, because the slots of its own pipe are full. Then
// the session's sink gets that part first, since tee(2) begins at the first unread byte, and the mirror takes the rest
// after it, once its own pipe was drained, or into a second one. If there is no room then, the mirror is behind: the
// session never waits for it.

// offer gives the mirror, if any, the first n bytes in a session's pipe. It returns how many of them the sink
// may get before the next offer: all, if the mirror has ended.
func (d *direction) offer(n int) int {
	m := d.mirror()
	if m == nil {
		return n
	}
	if m.teed == 0 {
		m.tee(d.held.pipe.(*pipe.Pipe), n)
	}
	if m.is(mirrorOver) {
		return n
	}
	return min(m.teed, n)
}

// passed notes that the sink, or a buffer for it, has got n bytes of a session's pipe.
func (d *direction) passed(n int) {
	if m := d.mirror(); m != nil {
		m.teed = max(m.teed-n, 0)
	}
}

// tee duplicates the n bytes of a pipe, or as many as there is room for. None of them was duplicated before. If
// there is no room at all, the mirror ends.
func (m *Mirror) tee(from *pipe.Pipe, n int) {
	m.drain()
	if m.is(mirrorOver) || !m.lease(m.drv.relay.cfg.MaxPipeSize, n) {
		return
	}
	k, err := from.Tee(m.pipe, n)
	if full(k, err) && m.another() {
		k, err = from.Tee(m.pipe, n)
	}
	m.wait()
	switch {
	case k > 0:
		m.teed = k
		m.runs.add(k, true)
		if m.observer != nil {
			m.observer.Skipped(k)
		}
		m.recall()
	case full(k, err):
		m.undelivered(n)
		m.end(driver.MirrorBehind, nil)
	default:
		m.undelivered(n)
		m.failed("tee", err)
	}
}

// full reports whether a write to a pipe, or a tee, has found no room.
func full(n int, err error) bool { return n <= 0 && (err == nil || wouldBlock(err)) }

// another leases a second pipe for a mirror with a full pipe, and reports whether it got one. The full pipe is
// drained first.
func (m *Mirror) another() bool {
	if m.older != nil {
		return false
	}
	p, err := m.drv.pipe(m.pipe.Size())
	if err != nil {
		return false
	}
	m.older, m.pipe = m.pipe, p.(*pipe.Pipe)
	return true
}

// drainPipe sends the shadow the bytes of the older pipe, or of the only one.
func (m *Mirror) drainPipe() (int, error) {
	p := m.pipe
	if m.older != nil {
		p = m.older
	}
	n, err := m.socket.drain(p, p.Len())
	teed := m.runs.remove(n)
	m.res.Teed += int64(teed)
	m.res.Copied += int64(max(n, 0) - teed)
	if p == m.older && p.Len() == 0 {
		m.drv.returnPipe(p)
		m.older = nil
	}
	return n, err
}

// maxMirrorBuffer bounds the bytes that a mirror without pipes keeps for its shadow.
const maxMirrorBuffer = 256 << 10

// maxMirrorHeap bounds the bytes of the heap that all mirrors of a loop use.
const maxMirrorHeap = 16 << 20

// A mirrorBuffer holds the bytes that the shadow of a mirror without pipes has not taken yet. Its memory comes
// from the loop's arena, or from the heap (at most maxMirrorHeap) if the arena is full or has no slots of the
// size. The memory is given back when the buffer is empty.
type mirrorBuffer struct {
	*buffer
	off, end int
}

// len returns how many bytes there are.
func (q *mirrorBuffer) len() int { return q.end - q.off }

// store appends as many bytes as there is room for, and returns how many.
func (m *Mirror) store(b []byte) int {
	q := &m.buffered
	n := min(len(b), maxMirrorBuffer-q.len())
	if need := q.len() + n; (q.buffer == nil || need > len(q.b)) && !m.growBuffer(need) {
		return 0
	}
	if q.end+n > len(q.b) {
		q.off, q.end = 0, copy(q.b, q.b[q.off:q.end])
	}
	q.end += copy(q.b[q.end:], b[:n])
	return n
}

// growBuffer moves the kept bytes into a buffer of at least need bytes. It reports false if
// there is no memory for one.
func (m *Mirror) growBuffer(need int) bool {
	size := 1 << bits.Len(uint(max(need, smallBuffer)-1))
	larger := m.drv.slot(size)
	if larger.unpooled {
		if m.drv.mirrorHeap+size > maxMirrorHeap {
			return false
		}
		m.drv.mirrorHeap += size
	}
	was := m.buffered
	m.buffered = mirrorBuffer{buffer: larger}
	if was.buffer != nil {
		m.buffered.end = copy(larger.b, was.b[was.off:was.end])
		m.drv.giveBackMirrored(was.buffer)
	}
	return true
}

// giveBackMirrored gives back the buffer of a mirror.
func (d *Driver) giveBackMirrored(b *buffer) {
	if b.unpooled {
		d.mirrorHeap -= len(b.b)
	}
	d.giveBack(b)
}

// drainBuffer sends the shadow as many of the kept bytes as it takes.
func (m *Mirror) drainBuffer() (int, error) {
	q := &m.buffered
	n, err := m.socket.send(q.b[q.off:q.end])
	if n > 0 {
		q.off += n
		m.res.Copied += int64(n)
	}
	if q.len() == 0 {
		m.dropBuffer()
	}
	return n, err
}

// dropBuffer gives the memory back.
func (m *Mirror) dropBuffer() {
	if m.buffered.buffer != nil {
		m.drv.giveBackMirrored(m.buffered.buffer)
		m.buffered = mirrorBuffer{}
	}
}

// A mirrorRuns notes how the bytes in a mirror's pipes came there, in their order, as lengths of runs: positive
// for bytes by tee(2), negative for written bytes. There are no more runs than the pipes have slots.
type mirrorRuns []int32

// reset forgets the runs. The usual memory stays with the mirror, so that its moves allocate nothing.
func (r *mirrorRuns) reset() {
	if *r = (*r)[:0]; cap(*r) > 16 {
		*r = nil
	}
}

// add appends n bytes.
func (r *mirrorRuns) add(n int, teed bool) {
	if n <= 0 {
		return
	}
	run := int32(n) // n is at most the bytes of a pipe
	if !teed {
		run = -run
	}
	if last := len(*r) - 1; last >= 0 && ((*r)[last] > 0) == teed {
		(*r)[last] += run
		return
	}
	*r = append(*r, run)
}

// remove removes the first n bytes, and returns how many of them came by tee(2).
func (r *mirrorRuns) remove(n int) (teed int) {
	for n > 0 && len(*r) > 0 {
		run := &(*r)[0]
		k := min(n, int(max(*run, -*run)))
		n -= k
		if *run > 0 {
			teed += k
			*run -= int32(k)
		} else {
			*run += int32(k)
		}
		if *run == 0 {
			*r = (*r)[:copy(*r, (*r)[1:])]
		}
	}
	return teed
}
