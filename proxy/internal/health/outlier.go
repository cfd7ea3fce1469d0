package health

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// OutlierConfig configures the ejection of endpoints by the outcomes of their connections.
type OutlierConfig struct {
	// ConsecutiveFailures is the number of failures in a row that ejects an endpoint; 0: no
	// such rule.
	ConsecutiveFailures int
	// FailurePercentage is the part of failed connections within Window that ejects an
	// endpoint, if there were at least MinVolume; 0: no such rule.
	FailurePercentage float64
	Window            time.Duration
	MinVolume         int
	// BaseEjectionTime is the duration of an endpoint's first ejection. The n-th ejection takes n times as long, at most
	// MaxEjectionTime. Each BaseEjectionTime without an ejection afterwards reduces the count by one.
	BaseEjectionTime, MaxEjectionTime time.Duration
	// MaxEjected is the part of the endpoints, rounded down, that may be ejected at once. Endpoints that get no clients
	// anyway do not count, see [Target]. 0: none is ever ejected.
	MaxEjected float64
}

// An OutlierDetector judges the endpoints of one upstream. It is safe for concurrent use.
type OutlierDetector struct {
	scheduler *Scheduler
	// Withheld is how many times an endpoint would have been ejected if MaxEjected had allowed it;
	// each further failure counts. With a single endpoint nothing is counted, because clients have
	// no other endpoint.
	Withheld atomic.Int64
	full     atomic.Bool // at the last look no more could be ejected, see hasRoom; written under mu
	single   atomic.Bool // there is at most one endpoint, so that nothing is withheld; written under mu

	mu      sync.Mutex
	cfg     *OutlierConfig
	all     *rule // the rule of cfg, if it has no window; nil: not made yet
	members int
	ejected []*OutlierMonitor
}

// An OutlierMonitor is an endpoint that an [OutlierDetector] judges.
type OutlierMonitor struct {
	outlier     *OutlierDetector
	subject     string
	target      Target
	rule        atomic.Pointer[rule]
	streak      atomic.Int32 // failures since the last success
	certain     atomic.Int32 // failures of the streak that no client can have caused
	sources     sources
	ejected     atomic.Bool // written under outlier.mu
	damper      damper
	silent      damper // of silences
	last        failure
	withheld    atomic.Int64           // number of withheld ejections, see OutlierDetector.Withheld
	withheldFor atomic.Pointer[string] // cause of the last withheld ejection; nil: the last failure

	lastUnreached   atomic.Bool // the last failure was a failed connect
	streakUnreached atomic.Bool // a failure of the streak was a failed connect
	reachedSince    atomic.Bool // a connect has succeeded since the last ejection

	// Guarded by outlier.mu.
	gone          bool  // not joined yet, or removed
	count         int   // ejections that counted at the last ejection
	until         int64 // end of the present ejection
	why           string
	returned      int64 // end of the last ejection
	unreachable   bool  // a failed connect has caused the ejection, or followed it
	answeredSince bool  // a check was answered, or a client served, since the ejection
	servedSince   int   // clients served in a row since the ejection
	earlyReturn   earlyTrial
}

// A rule says when an endpoint is ejected. It is replaced as a whole.
type rule struct {
	consecutive int32
	percent     float64
	volume      int
	window      *window
	span        int64 // length of the window; other sources than the failing one are witnesses for this time
}

// NewOutlierDetector returns an OutlierDetector without endpoints.
func NewOutlierDetector(k *Scheduler, cfg *OutlierConfig) *OutlierDetector {
	o := &OutlierDetector{scheduler: k, cfg: cfg}
	o.update()
	return o
}

// Configure replaces the configuration for the next failures. An existing OutlierMonitor takes it over by
// [OutlierMonitor.Configure], or at the end of its next ejection. Present ejections last as long as before, unless
// MaxEjected has become smaller.
func (o *OutlierDetector) Configure(cfg *OutlierConfig) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.cfg, o.all = cfg, nil
	o.shrink(o.members)
	o.update()
}

// Settle ends ejections if there are too many because ejected endpoints get clients again: they are no longer drained, or
// have a weight.
func (o *OutlierDetector) Settle() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.shrink(o.members)
	o.update()
}

// NewMonitor returns an endpoint that is judged from [OutlierDetector.Join] on. Its transitions call it subject. Until
// then it does not belong to the OutlierDetector, and may be dropped without a call.
func (o *OutlierDetector) NewMonitor(subject string, t Target) *OutlierMonitor {
	m := &OutlierMonitor{outlier: o, subject: subject, target: t, gone: true}
	m.rule.Store(&lenient)
	return m
}

// lenient is the rule for endpoints that are not judged yet.
var lenient rule

// Join adds endpoints that NewMonitor has made, each once.
func (o *OutlierDetector) Join(members ...*OutlierMonitor) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, m := range members {
		m.gone = false
		m.rule.Store(o.rule())
	}
	o.members += len(members)
	o.update()
}

// rule returns the rule for an endpoint: all endpoints share it, unless it has a window.
func (o *OutlierDetector) rule() *rule {
	if o.all != nil {
		return o.all
	}
	r := &rule{percent: o.cfg.FailurePercentage, volume: o.cfg.MinVolume, span: int64(o.cfg.Window)}
	r.consecutive = int32(min(o.cfg.ConsecutiveFailures, math.MaxInt32))
	if r.percent > 0 {
		r.window = newWindow(o.cfg.Window)
	} else {
		o.all = r
	}
	return r
}

// Ejected returns the number of ejected endpoints, and the number of all.
func (o *OutlierDetector) Ejected() (ejected, all int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.ejected), o.members
}

// Withholdings returns [OutlierDetector.Withheld] for one endpoint, and the cause of the last withheld
// ejection, or the last failure that would have caused it.
func (m *OutlierMonitor) Withholdings() (times int64, why string) {
	if cause := m.withheldFor.Load(); cause != nil {
		return m.withheld.Load(), *cause
	}
	return m.withheld.Load(), m.last.String()
}

// withhold counts a withheld ejection, for a cause or for the last failure.
func (m *OutlierMonitor) withhold(cause *string) {
	if m.outlier.single.Load() {
		return
	}
	m.withheldFor.Store(cause)
	m.withheld.Add(1)
	m.outlier.Withheld.Add(1)
}

// allowed returns how many of an upstream's endpoints may be ejected at once. The rounding error of a decimal fraction must
// not cost an ejection.
func (o *OutlierDetector) allowed(members int) int {
	return min(int(math.Floor(o.cfg.MaxEjected*float64(members)+1e-9)), members)
}

// update recomputes whether more may be ejected.
func (o *OutlierDetector) update() {
	o.single.Store(o.members <= 1)
	held := o.held()
	o.full.Store(len(held) >= o.allowed(o.members) && !slices.ContainsFunc(held, func(m *OutlierMonitor) bool { return m.answeredSince }))
}

// held returns the ejected endpoints that hold a place under MaxEjected. An endpoint that gets no clients anyway needs
// none. The outlier is locked.
func (o *OutlierDetector) held() (list []*OutlierMonitor) {
	for _, m := range o.ejected {
		if !m.target.Away() {
			list = append(list, m)
		}
	}
	return list
}

// hasRoom reports whether the endpoint may be ejected. If there was no room at the last look it looks again, because an
// ejected endpoint may get no clients by now.
func (m *OutlierMonitor) hasRoom() bool {
	o := m.outlier
	if !o.full.Load() {
		return true
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.update()
	return !o.full.Load() || m.needsNoPlace()
}

// needsNoPlace reports whether the endpoint may be ejected without a place under MaxEjected. The outlier is locked.
func (m *OutlierMonitor) needsNoPlace() bool {
	return m.target.Away() && m.outlier.allowed(m.outlier.members) > 0
}

// mayEject reports whether one more endpoint may be ejected. At the limit, the recovered endpoint whose ejection ends first
// returns, to make room.
func (o *OutlierDetector) mayEject(now int64) bool {
	held := o.held()
	if len(held) < o.allowed(o.members) {
		return true
	}
	var first *OutlierMonitor
	for _, m := range held {
		if m.answeredSince && (first == nil || m.until < first.until) {
			first = m
		}
	}
	if first == nil {
		return false
	}
	first.reinstate(now, "it answers, and another endpoint fails")
	return true
}

// shrink reinstates endpoints if more are ejected than the limit for this number of members allows, beginning with the
// ejection that would end first.
func (o *OutlierDetector) shrink(members int) {
	for held := o.held(); len(held) > o.allowed(members); held = o.held() {
		first := slices.MinFunc(held, func(a, b *OutlierMonitor) int { return int(min(max(a.until-b.until, -1), 1)) })
		first.reinstate(o.scheduler.cfg.Now(), "too many endpoints are ejected")
	}
}

// Reached reports that a connection to the endpoint was made. It counts as a success until
// Report says otherwise; but failures of reached connections count as consecutive until a
// connection ends as OK. Event loops call it, before Report.
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

// ReportFrom reports the outcome of a connection from a source, or from UnsampledSource. Failures that a client may have
// caused eject the endpoint only if the outcomes of the other sources of the sample would eject it too, or if none of these
// sources was served within the window: then there are no other clients. With a source, OK means that the endpoint has sent
// something. Event loops call ReportFrom: it allocates nothing, locks the sample, and waits for no other goroutine but to
// eject.
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

// Withheld reports whether connections to the endpoint fail, and only MaxEjected prevents
// its ejection for failures in a row.
func (m *OutlierMonitor) Withheld() bool {
	r := m.rule.Load()
	return m.lastUnreached.Load() && r.consecutive > 0 && m.streak.Load() >= r.consecutive && !m.ejected.Load()
}

// FailsInARow reports whether the endpoint has failed often enough in a row but is not ejected, and whether only clients of
// a few sources have seen these failures.
func (m *OutlierMonitor) FailsInARow(now int64) (fails, fewSources bool) {
	r := m.rule.Load()
	if r.consecutive == 0 || m.streak.Load() < r.consecutive || m.ejected.Load() {
		return false, false
	}
	return true, m.fewSources(r, now)
}

// ServedSince reports whether the endpoint is ejected and has served the last client that it got since.
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
	inRow := r.consecutive > 0 && streak >= r.consecutive && !m.fewSources(r, now)
	if !inRow && !m.failing(r, now) {
		return
	}
	if !m.hasRoom() {
		if o.Failed() {
			m.withhold(nil)
		}
		return
	}
	cause := inAStreak(int(streak), "failure")
	if !inRow {
		ok, failed := r.window.sum(now)
		cause = fmt.Sprintf("%d of %d connections failed", failed, ok+failed)
	}
	// A process that ends cuts its sessions and refuses connections, in any order.
	m.ejectFor(now, fmt.Sprintf("%s, the last: %v", cause, &m.last), m.lastUnreached.Load() || m.streakUnreached.Load(), false)
}

// fewSources reports whether a few sources alone have caused a streak of failures.
func (m *OutlierMonitor) fewSources(r *rule, now int64) bool {
	sure := m.certain.Load()
	return sure < r.consecutive && m.sources.streakOfFew(sure, r.consecutive, now, r.span)
}

// inAStreak formats a count of consecutive events.
func inAStreak(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss in a row", n, what)
}

// failing reports whether too many of the endpoint's connections fail. A success can complete MinVolume, too.
func (m *OutlierMonitor) failing(r *rule, now int64) bool {
	if r.window == nil {
		return false
	}
	_, _, yes := r.window.tooMany(now, r.percent, r.volume)
	return yes && !m.sources.shareOfFew(r.percent, now, r.span)
}

// Eject ejects the endpoint for another cause, unless it is ejected already or may not be, and
// reports whether it did. The ejection lasts as long as one for failures or, if stay is set,
// until [OutlierMonitor.Return].
func (m *OutlierMonitor) Eject(now int64, cause string, stay bool) bool {
	return m.ejectFor(now, cause, false, stay)
}

// ejectFor ejects the endpoint; connects says that the cause is failed connects.
func (m *OutlierMonitor) ejectFor(now int64, cause string, connects, stay bool) bool {
	o := m.outlier
	o.mu.Lock()
	defer o.mu.Unlock()
	if m.gone || m.ejected.Load() {
		return false
	}
	if !m.needsNoPlace() && !o.mayEject(now) {
		m.withhold(&cause)
		return false
	}
	base := max(int64(o.cfg.BaseEjectionTime), 1)
	// A connect that succeeded meanwhile proves something only if the endpoint has no other failures.
	if m.reachedSince.Swap(false) && (m.lastUnreached.Load() || now-m.returned >= base) {
		m.earlyReturn.become(Closed, now)
	}
	m.earlyReturn.become(Open, now)
	m.unreachable, m.answeredSince, m.servedSince = connects, false, 0
	m.count = m.ejectionCount(now, base) + 1
	took := min(base*int64(m.count), max(int64(o.cfg.MaxEjectionTime), base))
	m.why = cause
	if m.until = never; !stay {
		m.until = now + took
		cause = fmt.Sprintf("for %v: %s", time.Duration(took), cause)
	}
	o.ejected = append(o.ejected, m)
	o.update()
	m.ejected.Store(true)
	m.target.SetEjected(true)
	m.notify("ejected", now, cause)
	if !stay {
		o.scheduler.at(m.until, m)
	}
	return true
}

// Return ends an ejection, if there is one, with a cause.
func (m *OutlierMonitor) Return(now int64, cause string) {
	m.outlier.mu.Lock()
	defer m.outlier.mu.Unlock()
	if m.ejected.Load() {
		m.reinstate(now, cause)
	}
}

// ServesOthers reports whether another source was served recently.
func (m *OutlierMonitor) ServesOthers(than Source, now int64) bool {
	return m.sources.spares(than, Silent, now, m.rule.Load().span)
}

// Recovered reports that an endpoint which a check had found unhealthy is healthy again. The state in which its connections
// failed is over, so an ejection ends.
func (m *OutlierMonitor) Recovered() {
	m.Return(m.outlier.scheduler.cfg.Now(), "its checks succeed again")
}

// SetDown sets whether the endpoint's checks have found it unhealthy. While they have, its ejections and returns are
// counted, but not reported. Afterwards the last of them is reported if it changes the last reported state. SetDown is
// called after [OutlierMonitor.Recovered].
func (m *OutlierMonitor) SetDown(down bool) { m.damper.mute(m.outlier.scheduler, down) }

// Connected reports a connect to the endpoint that began at a time and succeeded, by a check or by a client in spite of an
// ejection. If the endpoint was ejected because connects failed, the ejection ends at once. If an earlier return of this
// kind was followed by failed connects only, the ejection ends only after a while: a sixteenth of BaseEjectionTime, then
// twice as long each time.
func (m *OutlierMonitor) Connected(began int64) {
	m.endOn(began, func() bool { return m.unreachable }, "connections to it succeed again")
}

// Answered reports that the endpoint has answered a check that began at began, as a healthy endpoint does. This does not
// end the ejection. But if an endpoint that fails finds no other free place, this one gives up its place.
func (m *OutlierMonitor) Answered(began int64) {
	m.endOn(began, func() bool { m.answeredSince = true; m.outlier.update(); return false }, "")
}

// Served notes that the endpoint has served a client in spite of an ejection, in a session that began at a time. The
// ejection ends after as many served clients in a row as failures are needed to eject. A single client has the effect of
// [OutlierMonitor.Answered].
func (m *OutlierMonitor) Served(began int64) {
	m.endOn(began, func() bool {
		m.answeredSince = true
		m.outlier.update()
		m.servedSince++
		return m.servedSince >= int(max(m.rule.Load().consecutive, servedLeast)) && m.until != never
	}, "it serves clients again")
}

// servedLeast is the least number of clients in a row that an ejected endpoint has to serve to return.
const servedLeast = 3

// failedSince notes that a connection has failed since the endpoint was ejected; unreached says that the connect failed.
func (m *OutlierMonitor) failedSince(unreached bool) {
	m.outlier.mu.Lock()
	defer m.outlier.mu.Unlock()
	if m.ejected.Load() {
		m.servedSince = 0
		m.unreachable = m.unreachable || unreached && m.until != never
	}
}

// Unreached notes that a check could not connect to the endpoint. A process that ends cuts its sessions; if no client tries
// to connect meanwhile, only the check shows that the endpoint refuses connections as well. Then failed connects count as
// the cause of the present or next ejection, see [OutlierMonitor.Connected].
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

// endOn ends an ejection if ends agrees and the evidence for the endpoint began after the ejection.
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

// ejectionCount returns the number of ejections that count: one less for each base time since the end of the last one, and
// no more than make a difference.
func (m *OutlierMonitor) ejectionCount(now, base int64) int {
	well := max(now-m.returned, 0) / base
	most := max(int64(m.outlier.cfg.MaxEjectionTime), base) / base
	return int(max(min(int64(m.count), most)-well, 0))
}

// expire ends the ejection if its ejection time is over.
func (m *OutlierMonitor) expire(now int64) {
	m.outlier.mu.Lock()
	defer m.outlier.mu.Unlock()
	if m.ejected.Load() && now >= m.until {
		m.reinstate(now, "its ejection time is over")
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

// Configure applies the OutlierDetector's present configuration to the endpoint, from the next connection on. Earlier
// outcomes are forgotten; ejections are not.
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

// Ejected reports whether the endpoint is ejected, and until when: [math.MaxInt64] if this is not known.
func (m *OutlierMonitor) Ejected() (until int64, ejected bool) {
	m.outlier.mu.Lock()
	defer m.outlier.mu.Unlock()
	return m.until, m.ejected.Load()
}

// last returns the last transition, the zero value if there was none.
func (d *damper) last() Transition {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.flap == nil {
		return Transition{}
	}
	return d.flap.last
}

// Why returns the cause and the time of the endpoint's ejection, "" and 0 if it is not ejected.
func (m *OutlierMonitor) Why() (cause string, since int64) {
	m.outlier.mu.Lock()
	defer m.outlier.mu.Unlock()
	if !m.ejected.Load() {
		return "", 0
	}
	return m.why, m.earlyReturn.opened
}

// Why returns the cause of the Breaker's state, unless it is closed. If it is open, until is the end of that state;
// otherwise 0.
func (b *Breaker) Why() (cause string, until int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	state := b.State()
	if state == Closed {
		return "", 0
	}
	if state == Open {
		until = b.until
	}
	return b.damper.last().Cause, until
}
