package relay

// An ending is the last of a direction, after its driver has stopped.
type ending struct {
	*direction
	reason                   Reason
	sinkFailed, sourceFailed bool // found by either direction
}

// endingOf begins the end of d; other is the opposite direction.
func endingOf(d, other *direction, reason Reason) ending {
	return ending{
		direction: d, reason: reason,
		sinkFailed:   d.failedAt(sideSink) || other.failedAt(sideSource),
		sourceFailed: d.failedAt(sideSource) || other.failedAt(sideSink),
	}
}

// flushAndAbandon is called with the direction's ends held, if they can be.
func (e ending) flushAndAbandon(held bool) {
	if e.mode == rewriting {
		r := e.rareState().rewrite
		r.dropped = r.dropped || e.sourceFailed
	}
	switch {
	case !held || e.sinkFailed:
	case e.reason != ReasonEOF:
		e.flush(e.sourceFailed)
	case !e.is(ended): // the other direction's end has ended the session
		e.flush(true)
	}
	e.abandon(held)
}

// over says how the direction ended, and reports whether the connection that it
// writes to must be reset: because the source's end of file was not passed on, or
// because the source has failed since. A direction that the other one's end has ended
// (directionEnded) has passed on none, but may have lost nothing either.
func (e ending) over() (resetSink bool) {
	if !e.is(ended) {
		reason := e.reason
		if reason == ReasonEOF && e.flow().Lost > 0 {
			reason = ReasonTruncated
		}
		e.finished(reason)
	}
	return e.sourceFailed || !e.atEOF()
}

// truncated reports whether the end of one direction has cost the other one bytes.
func truncated(ab, ba *direction) bool {
	return Reason(ab.reason.Load()) == ReasonTruncated || Reason(ba.reason.Load()) == ReasonTruncated
}

// finish ends a direction whose ends are held as a goroutine holds them.
func finish(d, other *direction, reason Reason) (resetSink bool) {
	e := endingOf(d, other, reason)
	hold(d, e.flushAndAbandon)
	return e.over()
}
