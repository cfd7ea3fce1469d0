package relay

import "slices"

// A pendingEnd is the end of a session that could not be ended at once: a callback has asked for it while the session, or
// another one of the driver, was being moved. The bytes in flight, the driver's work and warm, are those of the moving
// direction, and the moves after the callback need the session as it is.
type pendingEnd struct {
	of     *Driven
	reason Reason
	cause  error
}

// Cut ends the session for a cause, as [Session.Cut] does, and its owner is notified before
// Cut returns; but if it is called within a callback while bytes are being moved, such as by a
// [Rewriter] or a [MirrorObserver], soon after that has returned and before the loop waits: the first
// cause counts, unless the session ends by itself in that moment. It does nothing before Start and after the end.
func (s *Driven) Cut(cause error) {
	if s.drv != nil && !s.is(over) {
		s.end(ReasonCanceled, cause)
	}
}

// end ends the session, at once if that can be, and otherwise as soon as the moves are over. The first end counts.
func (s *Driven) end(reason Reason, cause error) {
	switch {
	case s.is(toEnd):
	case s.is(moving) || s.drv.stepping:
		s.state |= toEnd
		s.drv.ends = append(s.drv.ends, pendingEnd{s, reason, cause})
	default:
		s.settle(reason, cause)
	}
}

// seeToEnds ends the sessions that are to be ended, but for those that are still being moved. It is called after each
// move, so none is left when the loop waits.
func (d *Driver) seeToEnds() {
	for !d.stepping {
		i := slices.IndexFunc(d.ends, func(e pendingEnd) bool { return !e.of.is(moving) })
		if i < 0 {
			return
		}
		e := d.ends[i]
		e.of.settle(e.reason, e.cause) // which takes it from the list
	}
}

// forgetEnd takes a session from the list of those to be ended.
func (d *Driver) forgetEnd(s *Driven) {
	d.ends = slices.DeleteFunc(d.ends, func(e pendingEnd) bool { return e.of == s })
}
