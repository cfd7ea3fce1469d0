package relay

import (
	"fmt"
)

// A Transform changes the bytes that one side of a session on a loop sends, as a [Rewriter] does, by work that may take long:
// that is done on other goroutines, and meanwhile the side is not read, and the loop's other sessions have their turns. What goes on
// need not be as long as the bytes that came. But for the function that Begin passes, its methods are called on the loop's goroutine, and return soon.
type Transform interface {
	// Begin is called once, before the others. wake has the loop call Take. It may be called by any goroutine, at any time.
	Begin(wake func())
	// Most is how many bytes the next Put takes, at least 1.
	Most() int
	// Put takes the bytes that come next, which are borrowed for the call. Without any it is called when nothing has come for
	// [Socket.Hold] although bytes are held back.
	Put(b []byte)
	// End is called at the end of the source's bytes, once.
	End()
	// Take puts bytes that go on into b, which is zero, and returns how many. It is called after each Put and End, after each wake, and
	// again after it has returned bytes. If busy, work is under way, whose end is a wake: neither Put nor End is called
	// before. An error ends the session with [ReasonError]; both sides are reset.
	Take(b []byte) (n int, busy bool, err error)
	// Held is how many bytes Take has not returned yet: none after End, once Take returns none and is not busy.
	Held() int
	// Close is called once, at the end of the session, with work under way or not. No other call comes after it.
	Close()
}

// transforming is the part of a rewrite of a Transform.
type transforming struct {
	Transform
	busy   bool // work is under way
	ended  bool // End was called
	closed bool
	silent int64 // in when nothing had come for a while, and Put was called for it
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
	s.Transform.Begin(func() { _ = loop.Post(woken) }) // a loop that is closed has no sessions
}

// woken is called on the loop after a wake, which may be one of a session that is over.
func (r *rewrite) woken() {
	if r.transform.closed {
		return
	}
	r.due = true
	sessionOf(r.dir).move()
}

// transformed reports whether only a wake has the direction go on. Its mode is rewriting.
func (d *direction) transformed() bool {
	r := d.rareState().rewrite
	return r.transform.busy && !r.due
}

// fillTransformed takes bytes of the Transform, or reads once for it.
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
		return d.failRewrite(fmt.Errorf("%w: Most returned %d, not 1 or more", ErrRewriter, most))
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

// takeTransformed has the bytes that the Transform has ready delivered. Nothing else is held.
func (d *direction) takeTransformed(r *rewrite) wait {
	if err := d.wholeBuffer(); err != nil {
		return d.fail("lease buffer for", sideSource, err)
	}
	t, b := &r.transform, d.held.buf.b[:len(d.held.buf.b):len(d.held.buf.b)]
	clear(b) // which was another session's; all of it may be claimed
	n, busy, err := t.Take(b)
	r.held = t.Held()
	switch {
	case err != nil:
		return d.failRewrite(err)
	case n < 0 || n > len(b):
		return d.failRewrite(fmt.Errorf("%w: Take returned %d, of %d bytes", ErrRewriter, n, len(b)))
	case r.held < 0:
		err, r.held = fmt.Errorf("%w: Held returned %d after Take", ErrRewriter, r.held), 0
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

// quiet has the Transform decide about the bytes that it holds back, since nothing has come for a while.
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
		return d.failRewrite(fmt.Errorf("%w: Held returned %d after the last Take, not 0: no work is under way", ErrRewriter, r.held))
	case t.ended:
		return waitDone
	}
	t.ended, r.due = true, true
	t.End()
	return waitTurn
}

// closeTransform is the end of the session.
func (r *rewrite) closeTransform() {
	if t := &r.transform; t.Transform != nil && !t.closed {
		t.closed = true
		t.Close()
	}
}
