package health

import (
	"fmt"
	"slices"
	"time"
)

// Reached tells that a connection to the endpoint was made. It counts as one that
// succeeded, unless it is reported to have failed after all; but failures of those that
// were reached are in a row until one comes to be OK. It is called before Report, by
// event loops, like that.
func (m *Member) Reached(now int64) {
	if m.out.Load() {
		return
	}
	if !m.reached.Load() {
		m.reached.Store(true)
	}
	if m.unreached.Load() {
		m.unreached.Store(false)
		m.endRow()
	}
	if r := m.rule.Load(); r.window != nil {
		r.window.add(now, false)
		m.judge(r, OK, now, 0)
	}
}

// Report tells what a connection came to, of which every failure is the endpoint's. It is
// what event loops call: it allocates nothing, and locks nothing but to eject.
func (m *Member) Report(o Outcome, now int64) { m.report(Nobody, o, now) }

// ReportFrom is Report for a connection from a source, or from Anybody. Failures that may
// be the client's doing eject the endpoint only if what the others of the sample came to
// would, too, or if none of these was served within the window: then there is nobody else.
// From a source is an OK only if the endpoint has sent something. It locks what is noted
// of the sample, and waits for nobody but to eject.
func (m *Member) ReportFrom(s Source, o Outcome, now int64) {
	m.sources.note(s, o, now, m.rule.Load().span)
	m.report(s, o, now)
}

// Heard tells that the endpoint has sent something to a source, whose connection is not
// over.
func (m *Member) Heard(s Source, now int64) { m.sources.heard(s, now) }

func (m *Member) report(s Source, o Outcome, now int64) {
	switch {
	case o == Unknown || m.out.Load():
	case !o.Failed():
		if m.streak.Load() != 0 {
			m.endRow()
		}
	default:
		m.failed(s, o, now)
	}
}

// Withheld reports whether the endpoint has failed often enough in a row to be ejected, is not,
// since MaxEjected does not allow it, and cannot be connected to.
func (m *Member) Withheld() bool {
	r := m.rule.Load()
	return m.unreached.Load() && r.consecutive > 0 && m.streak.Load() >= r.consecutive && !m.out.Load()
}

// endRow ends a row of failures.
func (m *Member) endRow() {
	m.streak.Store(0)
	m.sure.Store(0)
}

// failed counts a failure.
func (m *Member) failed(s Source, o Outcome, now int64) {
	r := m.rule.Load()
	m.last.note(o)
	switch {
	case r.window == nil:
	case o.after():
		r.window.reverse(now)
	default:
		r.window.add(now, true)
	}
	if unreached := !o.after(); m.unreached.Load() != unreached {
		m.unreached.Store(unreached)
	}
	if !s.doubts(o) {
		m.sure.Add(1)
	}
	m.judge(r, o, now, m.streak.Add(1))
}

// judge ejects the endpoint if its failures say so.
func (m *Member) judge(r *rule, o Outcome, now int64, streak int32) {
	inRow := r.consecutive > 0 && streak >= r.consecutive && !m.rowOfOne(r, now)
	if !inRow && !m.failing(r, now) {
		return
	}
	if m.outlier.full.Load() {
		if o.Failed() {
			m.holdBack(nil)
		}
		return
	}
	if inRow {
		m.eject(now, fmt.Sprintf("%s, the last: %v", inARow(int(streak), "failure"), &m.last))
		return
	}
	ok, failed := r.window.sum(now)
	m.eject(now, fmt.Sprintf("%d of %d connections failed, the last: %v", failed, ok+failed, &m.last))
}

// rowOfOne reports whether a row of failures is one source's alone.
func (m *Member) rowOfOne(r *rule, now int64) bool {
	sure := m.sure.Load()
	return sure < r.consecutive && m.sources.rowOfOne(sure, r.consecutive, now, r.span)
}

// inARow says that there were so many of something, one after the other.
func inARow(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss in a row", n, what)
}

// failing reports whether too many of the endpoint's connections fail. Volume may be
// reached by one that is well, too.
func (m *Member) failing(r *rule, now int64) bool {
	if r.window == nil {
		return false
	}
	_, _, yes := r.window.tooMany(now, r.percent, r.volume)
	return yes && !m.sources.shareOfOne(r.percent, now, r.span)
}

// eject ejects the endpoint for what its connections came to.
func (m *Member) eject(now int64, cause string) { m.leave(now, cause, m.unreached.Load(), false) }

// Eject ejects the endpoint for another reason than those, unless it is or it may not be, and
// reports whether it did: for as long as its failures would or, to stay, until [Member.Return].
func (m *Member) Eject(now int64, cause string, stay bool) bool {
	return m.leave(now, cause, false, stay)
}

// leave ejects the endpoint; connects says that it cannot be connected to.
func (m *Member) leave(now int64, cause string, connects, stay bool) bool {
	o := m.outlier
	o.mu.Lock()
	defer o.mu.Unlock()
	if m.gone || m.out.Load() {
		return false
	}
	if !o.room(now) {
		m.holdBack(&cause)
		return false
	}
	if m.reached.Swap(false) {
		m.haste.become(Closed, now)
	}
	m.haste.become(Open, now)
	m.connects, m.well = connects, false
	base := max(int64(o.cfg.BaseEjectionTime), 1)
	m.count = m.account(now, base) + 1
	took := min(base*int64(m.count), max(int64(o.cfg.MaxEjectionTime), base))
	if m.until = never; !stay {
		m.until = now + took
		cause = fmt.Sprintf("%s; for %v", cause, time.Duration(took))
	}
	o.ejected = append(o.ejected, m)
	o.look()
	m.total.Add(1)
	m.out.Store(true)
	m.target.SetEjected(true)
	m.tell("ejected", now, cause)
	if !stay {
		o.keeper.at(m.until, m)
	}
	return true
}

// Return ends an ejection for a cause, if there is one.
func (m *Member) Return(now int64, cause string) {
	m.outlier.mu.Lock()
	defer m.outlier.mu.Unlock()
	if m.out.Load() {
		m.back(now, cause)
	}
}

// servesOthers reports whether somebody else than a source was served of late.
func (m *Member) servesOthers(than Source, now int64) bool {
	return m.sources.spares(than, Silent, now, m.rule.Load().span)
}

// Well tells that the endpoint, which a check had found unhealthy, is healthy again: it is
// not what failed those connections any more, and an ejection ends.
func (m *Member) Well() {
	m.outlier.mu.Lock()
	defer m.outlier.mu.Unlock()
	if m.out.Load() {
		m.back(m.outlier.keeper.cfg.Now(), "its checks succeed again")
	}
}

// SetDown says whether the endpoint's checks have found it unhealthy. As long as they have, its
// ejections and their ends are no news and not told, only counted; when that is over, the last
// of them is if it has changed what was told. It is called after [Member.Well].
func (m *Member) SetDown(down bool) { m.damper.mute(m.outlier.keeper, down) }

// Connected tells that the endpoint was connected to, which was begun at a time: by a check,
// or by a client in spite of an ejection. If it was ejected because it could not be
// connected to, that ends: at once, but if nobody could connect to it after it had returned so
// before, only after a while, a sixteenth of BaseEjectionTime and then twice as long each time.
func (m *Member) Connected(began int64) {
	m.witness(began, func() bool { return m.connects }, "it can be connected to again")
}

// Answered tells that the endpoint has answered a check that began at a time, as one that is
// well does. That does not end an ejection, but it gives its place to an endpoint that fails, if
// there are no others.
func (m *Member) Answered(began int64) {
	m.witness(began, func() bool { m.well = true; m.outlier.look(); return false }, "")
}

// witness ends an ejection if ends says so and what speaks against it began after it.
func (m *Member) witness(began int64, ends func() bool, cause string) {
	if !m.out.Load() {
		return
	}
	o := m.outlier
	o.mu.Lock()
	defer o.mu.Unlock()
	if m.out.Load() && began >= m.haste.opened && ends() && began >= m.haste.after(max(int64(o.cfg.BaseEjectionTime), 1)) {
		m.back(o.keeper.cfg.Now(), cause)
		m.haste.early = true
	}
}

// account returns how many ejections are on the account: one less for each base time
// since the last was over, and no more than make a difference.
func (m *Member) account(now, base int64) int {
	well := max(now-m.returned, 0) / base
	most := max(int64(m.outlier.cfg.MaxEjectionTime), base) / base
	return int(max(min(int64(m.count), most)-well, 0))
}

// turn ends the ejection if its time is over.
func (m *Member) turn(now int64) {
	m.outlier.mu.Lock()
	defer m.outlier.mu.Unlock()
	if m.out.Load() && now >= m.until {
		m.back(now, "its time is over")
	}
}

// back ends the ejection. The outlier is locked.
func (m *Member) back(now int64, cause string) {
	o := m.outlier
	o.ejected = slices.DeleteFunc(o.ejected, func(e *Member) bool { return e == m })
	o.look()
	m.returned = now
	m.rule.Store(o.rule())
	m.endRow()
	m.sources.forget()
	m.out.Store(false)
	m.target.SetEjected(false)
	m.tell("returned", now, cause)
}

func (m *Member) tell(state string, now int64, cause string) {
	m.outlier.keeper.note(&m.damper, Transition{
		Subject: m.subject, What: Ejection, State: state, Bad: state == "ejected", Cause: cause, Time: now,
	})
}

// Configure has the endpoint judged by the Outlier's present configuration, from the
// next connection on; what it did before is forgotten, its ejections are not.
func (m *Member) Configure() {
	m.outlier.mu.Lock()
	defer m.outlier.mu.Unlock()
	m.rule.Store(m.outlier.rule())
	m.sources.forget()
}

// Remove takes the endpoint from the Outlier. If it is ejected it is told that it is
// not any more. Reports that still come count for nothing. Remove may be called again.
func (m *Member) Remove() {
	o := m.outlier
	o.mu.Lock()
	defer o.mu.Unlock()
	if m.gone {
		return
	}
	m.gone = true
	if m.out.Load() {
		m.back(o.keeper.cfg.Now(), "it is removed")
	}
	o.shrink(o.members - 1)
	o.members--
	o.look()
}

// Ejected reports whether the endpoint is ejected, and until when; [math.MaxInt64] if that is
// not known.
func (m *Member) Ejected() (until int64, ejected bool) {
	m.outlier.mu.Lock()
	defer m.outlier.mu.Unlock()
	return m.until, m.out.Load()
}

// Ejections returns how many times it was.
func (m *Member) Ejections() int64 { return m.total.Load() }
