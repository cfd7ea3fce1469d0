package relay

import (
	"fmt"
	"time"

	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/relay/driver"
)

// A rewrite is the rewriting of a direction by its Transform.
type rewrite struct {
	driver.Transform
	dir    *direction
	hold   time.Duration
	ahead  []byte     // source bytes read before; borrowed
	timer  loop.Timer // armed while bytes are held back and none are to be read
	in     int64      // bytes that the Transform has taken
	mark   int64      // value of in when the timer was set
	silent int64      // value of in when Put was called because nothing had come for a while
	held   int        // Held after the last call
	busy   bool       // work is under way
	due    bool       // Take is to be called
	ended  bool       // End was called
	closed bool
}

// setTransform sets a Transform for the bytes of a socket, including bytes read before. Call it before setMirror.
func (d *direction) setTransform(s *Socket) {
	if s.Transform == nil {
		return
	}
	o := d.rareState()
	r := &rewrite{Transform: s.Transform, silent: -1, dir: d, hold: s.Hold, ahead: o.ahead}
	o.rewrite, o.ahead = r, nil
	d.mode = rewriting
	d.set(pinned, true)
	d.fallback(FallbackRewrite)
	loop, woken := sessionOf(d).drv.loop, r.woken
	r.Begin(func() { _ = loop.Post(woken) }) // a closed loop has no sessions
}

// fail ends the direction after an error or an invalid result of the Transform.
func (r *rewrite) fail(err error) wait { return r.dir.fail("rewrite", sideNone, err) }

// wrong is fail for an invalid result.
func (r *rewrite) wrong(format string, a ...any) wait {
	return r.fail(fmt.Errorf("%w: %s", driver.ErrTransform, fmt.Sprintf(format, a...)))
}

// woken runs on the loop after a wake. The session may have ended meanwhile.
func (r *rewrite) woken() {
	if r.closed {
		return
	}
	r.due = true
	sessionOf(r.dir).move()
}

// fillRewritten takes bytes from the Transform, or reads once for it.
func (d *direction) fillRewritten() wait {
	r := d.rareState().rewrite
	if w, asked := r.asked(); asked {
		return w
	}
	if err := d.wholeBuffer(); err != nil {
		return d.fail("lease buffer for", sideSource, err)
	}
	most := r.Most()
	if most < 1 {
		return r.wrong("Most returned %d, not 1 or more", most)
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
		r.Put(b[:n:n])
		r.held, r.due = r.Held(), true
		if d.pace == resting {
			d.release()
			return waitTokens
		}
		return waitTurn
	case err == nil:
		return d.sourceEnd()
	}
	w := d.sourceError("read", err)
	if w == waitSource && r.silent != r.in {
		r.wait()
	}
	return w
}

// asked takes bytes from the Transform if it has some, and reports whether it has, or whether they have to be awaited.
func (r *rewrite) asked() (w wait, asked bool) {
	switch {
	case r.closed:
		return waitSource, true
	case r.due:
		return r.take(), true
	case r.busy:
		r.dir.release()
		return waitSource, true
	}
	return 0, false
}

// take delivers the bytes that the Transform has ready. The lease is empty.
func (r *rewrite) take() wait {
	d := r.dir
	if err := d.wholeBuffer(); err != nil {
		return d.fail("lease buffer for", sideSource, err)
	}
	b := d.held.buf.b[:len(d.held.buf.b):len(d.held.buf.b)]
	clear(b) // it may hold bytes of another session, and Take may claim all of it
	n, busy, err := r.Take(b)
	r.held = r.Held()
	switch held := r.held; {
	case err != nil:
		return r.fail(err)
	case n < 0 || n > len(b):
		return r.wrong("Take returned %d, of %d bytes", n, len(b))
	case held < 0:
		r.held = 0
		return r.wrong("Held returned %d after Take", held)
	}
	r.busy, r.due = busy, n > 0
	d.held.off, d.held.end = 0, n
	if n == 0 && busy {
		d.release()
		return waitSource
	}
	return waitTurn
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

// wait sets the timer if held bytes wait for a time, unless it is set.
func (r *rewrite) wait() {
	if r.held > 0 && r.hold >= 0 && !r.timer.Armed() {
		r.mark = r.in
		sessionOf(r.dir).drv.loop.Arm(&r.timer, r, r.hold)
	}
}

// Expired implements [loop.Expirer]. If bytes held back when the timer was set are still held, the Transform has to
// decide about them. So no byte is held back for more than twice the time.
func (r *rewrite) Expired(*loop.Timer) {
	switch held := int64(r.held); {
	case held == 0:
	case r.in-held >= r.mark:
		r.wait()
	case !r.busy && !r.due && !r.dir.is(eofSeen):
		r.silent = r.in
		r.Put(nil)
		r.due = true
		sessionOf(r.dir).move()
	}
}

// awaitsWork reports whether a direction in mode rewriting has to wait for a wake.
func (d *direction) awaitsWork() bool {
	r := d.rareState().rewrite
	return r.busy && !r.due
}

// waitsForSink reports whether there is something to deliver without reading the source.
func (d *direction) waitsForSink() bool {
	if d.mode != rewriting {
		return d.readAhead() > 0
	}
	r := d.rareState().rewrite
	return len(r.ahead) > 0 || r.due
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
	if w, asked := r.asked(); asked {
		return w
	}
	switch {
	case r.ended && r.held > 0:
		return r.wrong("Held returned %d after the last Take, not 0: no work is under way", r.held)
	case r.ended:
		return waitDone
	}
	r.ended, r.due = true, true
	r.End()
	return waitTurn
}

// stopRewrite closes the Transform at the end of the session.
func (d *direction) stopRewrite() {
	if d.mode != rewriting {
		return
	}
	r := d.rareState().rewrite
	sessionOf(d).drv.loop.Disarm(&r.timer)
	if !r.closed {
		r.closed = true
		r.Close()
	}
}
