package relay

// A MirrorObserver sees what the source of a mirrored session sends, and both answers: those of
// the session's other side, and those of the shadow. Its methods are called on the loop's
// goroutine, must not wait, and borrow their bytes for the call.
type MirrorObserver interface {
	// Sent is called with bytes of the source that the other side has taken.
	Sent(b []byte)
	// Skipped is called with the number of bytes of the source that were spliced, and that no
	// observer sees. They come between those of Sent.
	Skipped(n int)
	// SentAll is called at the end of file of the source, if the other side has not ended its
	// answers before. Many servers drop the answers that they have not sent by then, so where
	// these stop says nothing about the shadow.
	SentAll()
	// Answered is called with bytes of the other side that the source has taken, and
	// ShadowAnswered with those of the shadow. Neither waits for the other: answers may come
	// before the shadow is connected. They return false if the observer wants no more.
	Answered(b []byte) (more bool)
	ShadowAnswered(b []byte) (more bool)
	// Ended is called once, and no other method after it: when the observer wants no more, when
	// the answers of one side have ended otherwise than by its end of file, or both have ended.
	// complete says that both were seen from the first byte to the end of file, and that the
	// shadow got all that the other side did. That may be after [MirrorOwner.MirrorEnded].
	Ended(complete bool)
}

// Observe has an observer see the bytes of the mirror's session. It is called between
// [Driver.StartMirror] and the start of the session, whose bytes of [Socket.Moved] are not among
// those that the observer sees. The answers of the session's other side do not go by splice then,
// but are copied (FallbackCompare), until the observer wants no more or the mirror ends.
func (m *Mirror) Observe(o MirrorObserver) { m.observer = o }

// An observing is the state of a direction whose bytes are answers that an observer sees.
type observing struct {
	mirror *Mirror
	mode   mode // of the direction before
	pinned bool // likewise
}

// observe has the observer of a mirror see a direction's bytes.
func (d *direction) observe(m *Mirror) {
	d.rareState().answers = &observing{mirror: m, mode: d.mode, pinned: d.is(pinned)}
	d.set(observed, true)
	if d.mode == rewriting { // whose bytes are copied, and stay rewritten
		return
	}
	if d.mode != copying || !d.is(pinned) {
		d.fallback(FallbackCompare)
	}
	d.mode = copying
	d.set(pinned, true)
}

// observer returns the mirror whose observer sees the direction's bytes, nil if there is none any
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

// hadEnough is the end of observing by an observer that wants no more, unless it has ended the mirror itself meanwhile.
func (m *Mirror) hadEnough(o MirrorObserver) {
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
func (m *Mirror) shadowEnded(reason MirrorReason) {
	seen := reason == MirrorComplete && m.is(mirrorAnswered)
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
