package health

import (
	"fmt"
	"slices"
	"time"
)

// Reached reports that a connection to the endpoint was made. It counts as a success until
// Report says otherwise; but failures of reached connections are in a row until one ends as
// OK. Event loops call it, before Report.
func (m *OutlierMonitor) Reached(now int64) {
	if m.ejected.Load() {
		return
	}
	if !m.reachedSince.Load() {
		m.reachedSince.Store(true)
	}
	if m.lastUnreached.Load() {
		m.lastUnreached.Store(false)
		m.endStreak()
	}
	if r := m.rule.Load(); r.window != nil {
		r.window.add(now, false)
		m.evaluate(r, OK, now, 0)
	}
}

// Report reports the outcome of a connection; every failure is counted as the endpoint's.
// Event loops call it: it allocates nothing, and locks nothing but to eject, and for failures
// while the endpoint is ejected.
func (m *OutlierMonitor) Report(o Outcome, now int64) { m.report(NoSource, o, now) }

// ReportFrom is Report for a connection from a source, or from UnsampledSource. Failures that
// may be the client's doing eject the endpoint in two cases only: if the outcomes of the other
// sources of the sample would, too, or if none of these was served within the window. Then
// there are no other clients. With a source, OK means that the endpoint has sent something.
// ReportFrom locks the sample, and waits for no other goroutine but to eject.
func (m *OutlierMonitor) ReportFrom(s Source, o Outcome, now int64) {
	m.sources.note(s, o, now, m.rule.Load().span)
	m.report(s, o, now)
}

// GotData reports that the endpoint has sent something to a source; its connection is not
// over.
func (m *OutlierMonitor) GotData(s Source, now int64) { m.sources.heard(s, now) }

func (m *OutlierMonitor) report(s Source, o Outcome, now int64) {
	switch {
	case o == Unknown:
	case m.ejected.Load():
		if o.Failed() {
			m.failedSince(!o.after())
		}
	case !o.Failed():
		if m.streak.Load() != 0 {
			m.endStreak()
		}
	default:
		m.failed(s, o, now)
	}
}

// Withheld reports whether the endpoint cannot be connected to, and only MaxEjected prevents
// its ejection for failures in a row.
func (m *OutlierMonitor) Withheld() bool {
	r := m.rule.Load()
	return m.lastUnreached.Load() && r.consecutive > 0 && m.streak.Load() >= r.consecutive && !m.ejected.Load()
}

// FailsInARow reports whether the endpoint has failed as often in a row as ejects it, and is not ejected; and whether
// only clients of one source have seen that.
func (m *OutlierMonitor) FailsInARow(now int64) (fails, oneSource bool) {
	r := m.rule.Load()
	if r.consecutive == 0 || m.streak.Load() < r.consecutive || m.ejected.Load() {
		return false, false
	}
	return true, m.singleSource(r, now)
}

// ServedSince reports whether the endpoint is ejected, and the last client that it got since was served.
func (m *OutlierMonitor) ServedSince() bool {
	if !m.ejected.Load() {
		return false
	}
	m.outlier.mu.Lock()
	defer m.outlier.mu.Unlock()
	return m.ejected.Load() && m.servedSince > 0
}

// endStreak ends a streak of failures.
func (m *OutlierMonitor) endStreak() {
	m.streakUnreached.Store(false)
	m.streak.Store(0)
	m.certain.Store(0)
}

// failed counts a failure.
func (m *OutlierMonitor) failed(s Source, o Outcome, now int64) {
	r := m.rule.Load()
	m.last.note(o)
	switch {
	case r.window == nil:
	case o.after():
		r.window.reverse(now)
	default:
		r.window.add(now, true)
	}
	if unreached := !o.after(); m.lastUnreached.Load() != unreached {
		m.lastUnreached.Store(unreached)
	}
	if !o.after() && !m.streakUnreached.Load() {
		m.streakUnreached.Store(true)
	}
	if !s.doubts(o) {
		m.certain.Add(1)
	}
	m.evaluate(r, o, now, m.streak.Add(1))
}

// evaluate ejects the endpoint if its failures reach a limit.
func (m *OutlierMonitor) evaluate(r *rule, o Outcome, now int64, streak int32) {
	inRow := r.consecutive > 0 && streak >= r.consecutive && !m.singleSource(r, now)
	if !inRow && !m.failing(r, now) {
		return
	}
	if m.outlier.full.Load() {
		if o.Failed() {
			m.withhold(nil)
		}
		return
	}
	if inRow {
		m.eject(now, fmt.Sprintf("%s, the last: %v", inAStreak(int(streak), "failure"), &m.last))
		return
	}
	ok, failed := r.window.sum(now)
	m.eject(now, fmt.Sprintf("%d of %d connections failed, the last: %v", failed, ok+failed, &m.last))
}

// singleSource reports whether a streak of failures is one source's alone.
func (m *OutlierMonitor) singleSource(r *rule, now int64) bool {
	sure := m.certain.Load()
	return sure < r.consecutive && m.sources.streakOfOne(sure, r.consecutive, now, r.span)
}

// inAStreak formats a count of consecutive events.
func inAStreak(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss in a row", n, what)
}

// failing reports whether too many of the endpoint's connections fail. A success may complete
// MinVolume, too.
func (m *OutlierMonitor) failing(r *rule, now int64) bool {
	if r.window == nil {
		return false
	}
	_, _, yes := r.window.tooMany(now, r.percent, r.volume)
	return yes && !m.sources.shareOfOne(r.percent, now, r.span)
}

// eject ejects the endpoint because of its connections' outcomes. A process that ends cuts its
// sessions and refuses connections, in any order.
func (m *OutlierMonitor) eject(now int64, cause string) {
	m.ejectFor(now, cause, m.lastUnreached.Load() || m.streakUnreached.Load(), false)
}

// Eject ejects the endpoint for another cause, unless it is ejected already or may not be, and
// reports whether it did. The ejection lasts as long as one for failures or, if stay is set,
// until [OutlierMonitor.Return].
func (m *OutlierMonitor) Eject(now int64, cause string, stay bool) bool {
	return m.ejectFor(now, cause, false, stay)
}

// ejectFor ejects the endpoint; connects says that it cannot be connected to.
func (m *OutlierMonitor) ejectFor(now int64, cause string, connects, stay bool) bool {
	o := m.outlier
	o.mu.Lock()
	defer o.mu.Unlock()
	if m.gone || m.ejected.Load() {
		return false
	}
	if !o.mayEject(now) {
		m.withhold(&cause)
		return false
	}
	base := max(int64(o.cfg.BaseEjectionTime), 1)
	// That it could be connected to since proves something only of one that fails in no other way.
	if m.reachedSince.Swap(false) && (m.lastUnreached.Load() || now-m.returned >= base) {
		m.earlyReturn.become(Closed, now)
	}
	m.earlyReturn.become(Open, now)
	m.unreachable, m.answeredSince, m.servedSince = connects, false, 0
	m.count = m.ejectionCount(now, base) + 1
	took := min(base*int64(m.count), max(int64(o.cfg.MaxEjectionTime), base))
	if m.until = never; !stay {
		m.until = now + took
		cause = fmt.Sprintf("%s; for %v", cause, time.Duration(took))
	}
	o.ejected = append(o.ejected, m)
	o.update()
	m.total.Add(1)
	m.ejected.Store(true)
	m.target.SetEjected(true)
	m.notify("ejected", now, cause)
	if !stay {
		o.scheduler.at(m.until, m)
	}
	return true
}

// Return ends an ejection, if there is one, for a cause.
func (m *OutlierMonitor) Return(now int64, cause string) {
	m.outlier.mu.Lock()
	defer m.outlier.mu.Unlock()
	if m.ejected.Load() {
		m.reinstate(now, cause)
	}
}

// servesOthers reports whether a source other than than was served recently.
func (m *OutlierMonitor) servesOthers(than Source, now int64) bool {
	return m.sources.spares(than, Silent, now, m.rule.Load().span)
}

// Recovered reports that an endpoint which a check had found unhealthy is healthy again. It is
// no longer in the state in which those connections failed, so an ejection ends.
func (m *OutlierMonitor) Recovered() {
	m.outlier.mu.Lock()
	defer m.outlier.mu.Unlock()
	if m.ejected.Load() {
		m.reinstate(m.outlier.scheduler.cfg.Now(), "its checks succeed again")
	}
}

// SetDown sets whether the endpoint's checks have found it unhealthy. While they have, its
// ejections and their ends are counted, but not reported. Afterwards the last of them is
// reported if it changes the last reported state. It is called after [OutlierMonitor.Recovered].
func (m *OutlierMonitor) SetDown(down bool) { m.damper.mute(m.outlier.scheduler, down) }

// Connected reports a successful connect to the endpoint, begun at a time, by a check or by a
// client in spite of an ejection. If the endpoint was ejected because it could not be
// connected to, the ejection ends at once. If an earlier return of this kind was followed by
// failed connects only, the ejection ends only after a while: a sixteenth of BaseEjectionTime,
// then twice as long each time.
func (m *OutlierMonitor) Connected(began int64) {
	m.endOn(began, func() bool { return m.unreachable }, "it can be connected to again")
}

// Answered reports that the endpoint has answered a check as a healthy one does. The check began
// at began. That does not end the ejection. But if no other place is free for an endpoint that
// fails, this one gives up its place.
func (m *OutlierMonitor) Answered(began int64) {
	m.endOn(began, func() bool { m.answeredSince = true; m.outlier.update(); return false }, "")
}

// Served notes that the endpoint has served a client in spite of an ejection, in a session that
// began at a time. As many in a row as the failures that eject end the ejection. One does the
// same as [OutlierMonitor.Answered].
func (m *OutlierMonitor) Served(began int64) {
	m.endOn(began, func() bool {
		m.answeredSince = true
		m.outlier.update()
		m.servedSince++
		return m.servedSince >= int(max(m.rule.Load().consecutive, servedLeast)) && m.until != never
	}, "it serves clients again")
}

// servedLeast is how many clients in a row an ejected endpoint has to serve to return, at least.
const servedLeast = 3

// failedSince notes that a connection has failed since the endpoint was ejected; unreached says that
// it could not be made.
func (m *OutlierMonitor) failedSince(unreached bool) {
	m.outlier.mu.Lock()
	defer m.outlier.mu.Unlock()
	if m.ejected.Load() {
		m.servedSince = 0
		m.unreachable = m.unreachable || unreached && m.until != never
	}
}

// Unreached notes that a check could not connect to the endpoint. A process that ends cuts its
// sessions; if no client tries to connect meanwhile, the check alone shows that the endpoint
// refuses connections as well. The ejection, present or next, is one by failed connects then, see
// [OutlierMonitor.Connected].
func (m *OutlierMonitor) Unreached() {
	m.outlier.mu.Lock()
	defer m.outlier.mu.Unlock()
	switch {
	case !m.ejected.Load():
		if m.streak.Load() != 0 {
			m.streakUnreached.Store(true)
		}
	case m.until != never:
		m.unreachable, m.servedSince = true, 0
	}
}

// endOn ends an ejection if ends agrees and the evidence against it began after it.
func (m *OutlierMonitor) endOn(began int64, ends func() bool, cause string) {
	if !m.ejected.Load() {
		return
	}
	o := m.outlier
	o.mu.Lock()
	defer o.mu.Unlock()
	if m.ejected.Load() && began >= m.earlyReturn.opened && ends() && began >= m.earlyReturn.after(max(int64(o.cfg.BaseEjectionTime), 1)) {
		m.reinstate(o.scheduler.cfg.Now(), cause)
		m.earlyReturn.early = true
	}
}

// ejectionCount returns the ejections that count: one less for each base time since the last
// was over, and no more than make a difference.
func (m *OutlierMonitor) ejectionCount(now, base int64) int {
	well := max(now-m.returned, 0) / base
	most := max(int64(m.outlier.cfg.MaxEjectionTime), base) / base
	return int(max(min(int64(m.count), most)-well, 0))
}

// expire ends the ejection if its time is over.
func (m *OutlierMonitor) expire(now int64) {
	m.outlier.mu.Lock()
	defer m.outlier.mu.Unlock()
	if m.ejected.Load() && now >= m.until {
		m.reinstate(now, "its time is over")
	}
}

// reinstate ends the ejection. The outlier is locked.
func (m *OutlierMonitor) reinstate(now int64, cause string) {
	o := m.outlier
	o.ejected = slices.DeleteFunc(o.ejected, func(e *OutlierMonitor) bool { return e == m })
	o.update()
	m.returned = now
	m.rule.Store(o.rule())
	m.endStreak()
	m.sources.forget()
	m.ejected.Store(false)
	m.target.SetEjected(false)
	m.notify("returned", now, cause)
}

func (m *OutlierMonitor) notify(state string, now int64, cause string) {
	m.outlier.scheduler.note(&m.damper, Transition{
		Subject: m.subject, Kind: Ejection, State: state, Bad: state == "ejected", Cause: cause, Time: now,
	})
}

// Configure applies the OutlierDetector's present configuration to the endpoint, from the next
// connection on. Its earlier outcomes are forgotten, its ejections are not.
func (m *OutlierMonitor) Configure() {
	m.outlier.mu.Lock()
	defer m.outlier.mu.Unlock()
	m.rule.Store(m.outlier.rule())
	m.sources.forget()
}

// Remove removes the endpoint from the OutlierDetector. An ejected endpoint is reinstated.
// Later reports count for nothing. Remove may be called again.
func (m *OutlierMonitor) Remove() {
	o := m.outlier
	o.mu.Lock()
	defer o.mu.Unlock()
	if m.gone {
		return
	}
	m.gone = true
	if m.ejected.Load() {
		m.reinstate(o.scheduler.cfg.Now(), "it is removed")
	}
	o.shrink(o.members - 1)
	o.members--
	o.update()
}

// Ejected reports whether the endpoint is ejected, and until when; [math.MaxInt64] if that is
// not known.
func (m *OutlierMonitor) Ejected() (until int64, ejected bool) {
	m.outlier.mu.Lock()
	defer m.outlier.mu.Unlock()
	return m.until, m.ejected.Load()
}

// Ejections returns the number of ejections.
func (m *OutlierMonitor) Ejections() int64 { return m.total.Load() }
