package relay

import (
	"fmt"
	"time"

	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/relay/driver"
)

// A rewrite is the rewriting of a direction.
type rewrite struct {
	driver.Rewriter // nil: transform takes its place
	transform       transforming
	dir             *direction
	hold            time.Duration
	ahead           []byte     // source bytes read before; borrowed
	timer           loop.Timer // armed while bytes are held back and none are to be read
	in              int64      // bytes that the Rewriter has taken
	mark            int64      // value of in when the timer was set
	room            int        // Room
	most            int        // Most
	held            int        // Held after the last call
	due             bool       // held bytes no longer wait; with a Transform: Take is to be called
	dropped         bool       // held bytes are not delivered, because the source or the Rewriter has failed
}

// setRewriter sets a Rewriter for the bytes of a socket, including bytes read before. Call it before setMirror.
// Wrong bounds of the Rewriter fail the direction.
func (d *direction) setRewriter(s *Socket) {
	if s.Transform != nil {
		d.setTransform(s)
	}
	if s.Rewriter == nil || s.Transform != nil {
		return
	}
	o := d.rareState()
	r := &rewrite{Rewriter: s.Rewriter, dir: d, hold: s.Hold, ahead: o.ahead, room: s.Rewriter.Room(), most: s.Rewriter.Most()}
	o.rewrite, o.ahead = r, nil
	d.mode = rewriting
	d.set(pinned, true)
	d.fallback(FallbackRewrite)
	switch {
	case r.room < 0 || r.room > mostRoom:
		d.failRewrite(fmt.Errorf("%w: Room returned %d, not 0 to %d", driver.ErrRewriter, r.room, mostRoom))
	case r.most < 1:
		d.failRewrite(fmt.Errorf("%w: Most returned %d, not 1 or more", driver.ErrRewriter, r.most))
	}
}

// mostRoom leaves half of a buffer for the bytes of a read.
const mostRoom = bufferSize / 2

// failRewrite ends the direction after an error or an invalid result of its Rewriter.
func (d *direction) failRewrite(err error) wait {
	d.rareState().rewrite.dropped = true
	return d.fail("rewrite", sideNone, err)
}

// take records the result of a call with b, or returns an error if the result is not allowed.
func (r *rewrite) take(call string, b []byte, from, to, mostHeld int) error {
	if from < 0 || to < from || to > len(b) {
		return fmt.Errorf("%w: %s returned from %d to %d, of %d bytes", driver.ErrRewriter, call, from, to, len(b))
	}
	held := r.Held()
	if held < 0 || held > mostHeld {
		return fmt.Errorf("%w: Held returned %d after %s, not 0 to %d", driver.ErrRewriter, held, call, mostHeld)
	}
	r.held = held
	r.dir.held.off, r.dir.held.end = from, to
	return nil
}

// fillRewritten reads once into the buffer, and rewrites the bytes.
func (d *direction) fillRewritten() wait {
	r := d.rareState().rewrite
	if r.Rewriter == nil {
		return d.fillTransformed(r)
	}
	if r.due && r.held > 0 {
		return d.releaseHeld(r)
	}
	if err := d.wholeBuffer(); err != nil {
		return d.fail("lease buffer for", sideSource, err)
	}
	b, room := d.held.buf.b, r.room
	n, err := 0, d.pass()
	if err == nil {
		n, err = r.read(b[room : room+d.clip(min(len(b)-room, r.most))])
	}
	switch {
	case n > 0:
		r.due = false
		r.in += int64(n)
		d.consumed(n)
		d.heard(b[room : room+n])
		clear(b[:room]) // it may hold bytes of another session
		b = b[: room+n : room+n]
		from, to, err := r.Rewrite(b, room)
		if err != nil {
			d.countLost(int64(n))
			return d.fail("rewrite", sideNone, err)
		}
		if err = r.take("Rewrite", b, from, to, room); err != nil {
			d.countLost(int64(n))
			return d.failRewrite(err)
		}
		if d.pace == resting { // rest before the bytes read go on
			return waitTokens
		}
		return waitTurn
	case err == nil:
		return d.sourceEnd()
	}
	w := d.sourceError("read", err)
	if w == waitSource {
		r.wait()
	}
	return w
}

// wholeBuffer leases a buffer of full size, unless the direction has one.
func (d *direction) wholeBuffer() error {
	if d.held.buf != nil && len(d.held.buf.b) < bufferSize {
		d.releaseBuffer()
	}
	if d.held.buf != nil {
		return nil
	}
	buf, err := d.env().buffer(bufferSize)
	d.held.buf = buf
	return err
}

// read returns the bytes read before, then reads from the source.
func (r *rewrite) read(p []byte) (n int, err error) {
	if len(r.ahead) == 0 {
		return r.dir.link.recv(p)
	}
	n = copy(p, r.ahead)
	if r.ahead = r.ahead[n:]; len(r.ahead) == 0 {
		r.ahead = nil
	}
	return n, nil
}

// releaseHeld delivers the bytes that are held back. The lease is empty.
func (d *direction) releaseHeld(r *rewrite) wait {
	if err := d.wholeBuffer(); err != nil {
		return d.fail("lease buffer for", sideSource, err)
	}
	b := d.held.buf.b[:r.room:r.room]
	clear(b)
	from, to, err := r.Release(b)
	if err != nil {
		return d.fail("rewrite", sideNone, err)
	}
	r.due = false
	if err = r.take("Release", b, from, to, 0); err != nil {
		return d.failRewrite(err)
	}
	return waitTurn
}

// wait sets the timer if held bytes wait for a time, unless it is set.
func (r *rewrite) wait() {
	if r.held > 0 && r.hold >= 0 && !r.timer.Armed() {
		r.mark = r.in
		sessionOf(r.dir).drv.loop.Arm(&r.timer, r, r.hold)
	}
}

// Expired implements [loop.Expirer]. If bytes held back when the timer was set are still held, all held bytes
// are passed on. So no byte is held back for more than twice the time.
func (r *rewrite) Expired(*loop.Timer) {
	switch held := int64(r.held); {
	case held == 0:
	case r.in-held >= r.mark:
		r.wait()
	case r.Rewriter == nil:
		r.quiet()
	default:
		r.due = true
		sessionOf(r.dir).move()
	}
}

// waitsForSink reports whether there is something to deliver without reading the source.
func (d *direction) waitsForSink() bool {
	if d.mode != rewriting {
		return d.readAhead() > 0
	}
	r := d.rareState().rewrite
	return len(r.ahead) > 0 || r.due && (r.held > 0 || r.Rewriter == nil)
}

// heldBack returns how many bytes of the direction are neither residue nor passed on.
func (d *direction) heldBack() int {
	if d.mode != rewriting {
		return 0
	}
	r := d.rareState().rewrite
	return r.held + len(r.ahead)
}

// endRewrite delivers the bytes held back at the end of file, and returns waitDone when nothing is left.
func (d *direction) endRewrite() wait {
	r := d.rareState().rewrite
	switch {
	case r.Rewriter == nil:
		return d.endTransform(r)
	case r.held == 0:
		return waitDone
	}
	d.releaseHeld(r)
	return waitTurn
}

// flushHeldBack is a part of flush. If the source has failed it drops the held bytes: the bytes after them are
// not known, and the receiver is reset.
func (d *direction) flushHeldBack() {
	r := d.rareState().rewrite
	if r.dropped || r.held == 0 || d.residue() > 0 || r.Rewriter == nil {
		return
	}
	d.releaseHeld(r)
	for moves := 0; moves < flushMoves && d.residue() > 0 && d.move() == waitTurn; moves++ {
	}
}

// stopRewrite ends the rewriting at the end of the session.
func (d *direction) stopRewrite() {
	if d.mode == rewriting {
		r := d.rareState().rewrite
		sessionOf(d).drv.loop.Disarm(&r.timer)
		r.closeTransform()
	}
}

// A transforming is the state of a rewrite by a Transform.
type transforming struct {
	driver.Transform
	busy   bool // work is under way
	ended  bool // End was called
	closed bool
	silent int64 // value of in when Put was called because nothing had come for a while
}

// setTransform is setRewriter for a Transform.
func (d *direction) setTransform(s *Socket) {
	o := d.rareState()
	r := &rewrite{transform: transforming{Transform: s.Transform, silent: -1}, dir: d, hold: s.Hold, ahead: o.ahead}
	o.rewrite, o.ahead = r, nil
	d.mode = rewriting
	d.set(pinned, true)
	d.fallback(FallbackRewrite)
	loop, woken := sessionOf(d).drv.loop, r.woken
	s.Transform.Begin(func() { _ = loop.Post(woken) }) // a closed loop has no sessions
}

// woken runs on the loop after a wake. The session may have ended meanwhile.
func (r *rewrite) woken() {
	if r.transform.closed {
		return
	}
	r.due = true
	sessionOf(r.dir).move()
}

// transformed reports whether a direction in mode rewriting has to wait for a wake.
func (d *direction) transformed() bool {
	r := d.rareState().rewrite
	return r.transform.busy && !r.due
}

// fillTransformed takes bytes from the Transform, or reads once for it.
func (d *direction) fillTransformed(r *rewrite) wait {
	t := &r.transform
	switch {
	case t.closed:
		return waitSource
	case r.due:
		return d.takeTransformed(r)
	case t.busy:
		d.release()
		return waitSource
	}
	if err := d.wholeBuffer(); err != nil {
		return d.fail("lease buffer for", sideSource, err)
	}
	most := t.Most()
	if most < 1 {
		return d.failRewrite(fmt.Errorf("%w: Most returned %d, not 1 or more", driver.ErrRewriter, most))
	}
	b := d.held.buf.b
	n, err := 0, d.pass()
	if err == nil {
		n, err = r.read(b[:d.clip(min(len(b), most))])
	}
	switch {
	case n > 0:
		r.in += int64(n)
		d.consumed(n)
		d.heard(b[:n])
		t.Put(b[:n:n])
		r.held, r.due = t.Held(), true
		if d.pace == resting {
			d.release()
			return waitTokens
		}
		return waitTurn
	case err == nil:
		return d.sourceEnd()
	}
	w := d.sourceError("read", err)
	if w == waitSource && t.silent != r.in {
		r.wait()
	}
	return w
}

// takeTransformed delivers the bytes that the Transform has ready. The lease is empty.
func (d *direction) takeTransformed(r *rewrite) wait {
	if err := d.wholeBuffer(); err != nil {
		return d.fail("lease buffer for", sideSource, err)
	}
	t, b := &r.transform, d.held.buf.b[:len(d.held.buf.b):len(d.held.buf.b)]
	clear(b) // it may hold bytes of another session, and Take may claim all of it
	n, busy, err := t.Take(b)
	r.held = t.Held()
	switch {
	case err != nil:
		return d.failRewrite(err)
	case n < 0 || n > len(b):
		return d.failRewrite(fmt.Errorf("%w: Take returned %d, of %d bytes", driver.ErrRewriter, n, len(b)))
	case r.held < 0:
		err, r.held = fmt.Errorf("%w: Held returned %d after Take", driver.ErrRewriter, r.held), 0
		return d.failRewrite(err)
	}
	t.busy, r.due = busy, n > 0
	d.held.off, d.held.end = 0, n
	if n == 0 && busy {
		d.release()
		return waitSource
	}
	return waitTurn
}

// quiet lets the Transform decide about the bytes that it holds back, because nothing has come for a while.
func (r *rewrite) quiet() {
	t := &r.transform
	if t.busy || r.due || r.dir.is(eofSeen) {
		return
	}
	t.silent = r.in
	t.Put(nil)
	r.due = true
	sessionOf(r.dir).move()
}

// endTransform is endRewrite for a Transform.
func (d *direction) endTransform(r *rewrite) wait {
	t := &r.transform
	switch {
	case t.closed:
		return waitSource
	case r.due:
		return d.takeTransformed(r)
	case t.busy:
		d.release()
		return waitSource
	case t.ended && r.held > 0:
		return d.failRewrite(fmt.Errorf("%w: Held returned %d after the last Take, not 0: no work is under way", driver.ErrRewriter, r.held))
	case t.ended:
		return waitDone
	}
	t.ended, r.due = true, true
	t.End()
	return waitTurn
}

// closeTransform closes the Transform at the end of the session.
func (r *rewrite) closeTransform() {
	if t := &r.transform; t.Transform != nil && !t.closed {
		t.closed = true
		t.Close()
	}
}
