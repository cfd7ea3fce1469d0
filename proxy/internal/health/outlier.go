package health

import (
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
	// BaseEjectionTime is the duration of an endpoint's first ejection. The n-th one takes n
	// times as long, at most MaxEjectionTime. Each BaseEjectionTime without an ejection
	// afterwards reduces the count by one.
	BaseEjectionTime, MaxEjectionTime time.Duration
	// MaxEjected is the part of the endpoints, rounded down, that may be ejected at once. 0:
	// none ever is.
	MaxEjected float64
}

// An OutlierDetector judges the endpoints of one upstream. It is safe for concurrent use.
type OutlierDetector struct {
	scheduler *Scheduler
	held      atomic.Int64
	full      atomic.Bool // no more may be ejected; written under mu
	single    atomic.Bool // there is one endpoint at most, so that nothing is withheld; written under mu

	mu      sync.Mutex
	cfg     *OutlierConfig
	all     *rule // of cfg, if it has no window; nil: not made yet
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
	certain     atomic.Int32 // of those, the failures that no client can have caused
	sources     sources
	ejected     atomic.Bool // ejected; written under outlier.mu
	total       atomic.Int64
	damper      damper
	silent      damper // of silences
	last        failure
	withheld    atomic.Int64           // times that it was not ejected, see OutlierDetector.Withheld
	withheldFor atomic.Pointer[string] // cause of the last of them; nil: the last failure

	lastUnreached   atomic.Bool // the last failure was a failed connect
	streakUnreached atomic.Bool // a failure of the streak was one
	reachedSince    atomic.Bool // it was connected to since it was ejected last

	// Guarded by outlier.mu.
	gone          bool  // it has not joined yet, or was removed
	count         int   // ejections that counted when it was ejected last
	until         int64 // of the ejection
	returned      int64 // end of the last ejection
	unreachable   bool  // it is ejected because it could not be connected to, or could not be since
	answeredSince bool  // it has answered a check, or served a client, since it was ejected
	servedSince   int   // clients in a row that it has served since it was ejected
	earlyReturn   earlyTrial
}

// A rule is the configuration by which an endpoint is judged. It is replaced as a whole.
type rule struct {
	consecutive int32
	percent     float64
	volume      int
	window      *window
	span        int64 // length of the window; sources other than the failing one are witnesses for as long
}

// NewOutlierDetector returns an OutlierDetector without endpoints.
func NewOutlierDetector(k *Scheduler, cfg *OutlierConfig) *OutlierDetector {
	o := &OutlierDetector{scheduler: k, cfg: cfg}
	o.update()
	return o
}

// Configure replaces the configuration for the next failures. An existing OutlierMonitor takes it
// over by [OutlierMonitor.Configure], or at the end of its next ejection. Present ejections last as
// long as they were to, unless MaxEjected has become smaller.
func (o *OutlierDetector) Configure(cfg *OutlierConfig) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.cfg, o.all = cfg, nil
	o.shrink(o.members)
	o.update()
}

// Add adds an endpoint, called subject in its transitions.
func (o *OutlierDetector) Add(subject string, t Target) *OutlierMonitor {
	m := o.NewMonitor(subject, t)
	o.Join(m)
	return m
}

// NewMonitor returns an endpoint, called subject in its transitions, that is judged from
// [OutlierDetector.Join] on. Until then it does not belong to the OutlierDetector, and may be
// dropped without a call.
func (o *OutlierDetector) NewMonitor(subject string, t Target) *OutlierMonitor {
	m := &OutlierMonitor{outlier: o, subject: subject, target: t, gone: true}
	m.rule.Store(&lenient)
	return m
}

// lenient is the rule of those that are not judged yet.
var lenient rule

// Join adds endpoints that NewMonitor has made, each of them once.
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

// rule returns an endpoint's rule: the common one, unless it has a window.
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

// Withheld returns how many times an endpoint would have been ejected if MaxEjected had
// allowed it; each further failure counts. If there is only one endpoint nothing counts:
// clients have no other.
func (o *OutlierDetector) Withheld() int64 { return o.held.Load() }

// Withholdings returns that number for one endpoint, and the cause of the last withheld
// ejection, or the last failure that would have caused it.
func (m *OutlierMonitor) Withholdings() (times int64, why string) {
	if cause := m.withheldFor.Load(); cause != nil {
		return m.withheld.Load(), *cause
	}
	return m.withheld.Load(), m.last.String()
}

// withhold counts an ejection withheld, for a cause or for the last failure.
func (m *OutlierMonitor) withhold(cause *string) {
	if m.outlier.single.Load() {
		return
	}
	m.withheldFor.Store(cause)
	m.withheld.Add(1)
	m.outlier.held.Add(1)
}

// allowed returns how many of so many endpoints may be ejected at once. The rounding error of
// a decimal fraction does not cost an ejection.
func (o *OutlierDetector) allowed(members int) int {
	return min(int(math.Floor(o.cfg.MaxEjected*float64(members)+1e-9)), members)
}

// update recomputes whether more may be ejected.
func (o *OutlierDetector) update() {
	o.single.Store(o.members <= 1)
	o.full.Store(len(o.ejected) >= o.allowed(o.members) && !slices.ContainsFunc(o.ejected, (*OutlierMonitor).recovered))
}

// recovered reports whether an ejected endpoint gives its place to one that fails. The outlier
// is locked.
func (m *OutlierMonitor) recovered() bool { return m.answeredSince }

// mayEject reports whether one more may be ejected. If the limit is reached, a recovered endpoint
// returns in its favor, the one with the earliest end.
func (o *OutlierDetector) mayEject(now int64) bool {
	if len(o.ejected) < o.allowed(o.members) {
		return true
	}
	var first *OutlierMonitor
	for _, m := range o.ejected {
		if m.recovered() && (first == nil || m.until < first.until) {
			first = m
		}
	}
	if first == nil {
		return false
	}
	first.reinstate(now, "it answers, and another one fails")
	return true
}

// shrink reinstates the endpoints that exceed the limit for so many members, in the order of
// their ends.
func (o *OutlierDetector) shrink(members int) {
	for len(o.ejected) > o.allowed(members) {
		first := slices.MinFunc(o.ejected, func(a, b *OutlierMonitor) int { return int(min(max(a.until-b.until, -1), 1)) })
		first.reinstate(o.scheduler.cfg.Now(), "too many are ejected")
	}
}
