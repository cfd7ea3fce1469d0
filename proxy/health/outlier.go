package health

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// OutlierConfig says when an endpoint is ejected by what its connections came to.
type OutlierConfig struct {
	// ConsecutiveFailures is after how many failures in a row; 0: it is not by these.
	ConsecutiveFailures int
	// FailurePercentage is from which part of its connections on, within Window and if
	// there were at least MinVolume; 0: it is not by this.
	FailurePercentage float64
	Window            time.Duration
	MinVolume         int
	// BaseEjectionTime is how long an endpoint is ejected the first time. The n-th time
	// takes n times as long, at most MaxEjectionTime. Each BaseEjectionTime for which an
	// endpoint is not ejected afterwards takes one of its ejections off the account.
	BaseEjectionTime, MaxEjectionTime time.Duration
	// MaxEjected is the part of the endpoints, rounded down, that may be ejected at
	// once. 0: none ever is.
	MaxEjected float64
}

// An Outlier judges the endpoints of one upstream. It is safe for concurrent use.
type Outlier struct {
	keeper *Keeper
	held   atomic.Int64
	full   atomic.Bool // no more may be ejected; written under mu
	lone   atomic.Bool // there is one endpoint at most, which nothing is kept from; written under mu

	mu      sync.Mutex
	cfg     *OutlierConfig
	all     *rule // of cfg, if it counts nothing; nil: it is not made yet
	members int
	ejected []*Member
}

// A Member is an endpoint among those that an [Outlier] judges.
type Member struct {
	outlier *Outlier
	subject string
	target  Target
	rule    atomic.Pointer[rule]
	streak  atomic.Int32 // failures since the last success
	sure    atomic.Int32 // of those, that no client can have caused
	sources sources
	out     atomic.Bool // ejected; written under outlier.mu
	total   atomic.Int64
	damper  damper
	silent  damper // of silences
	last    failure
	held    atomic.Int64           // times that it was not ejected, see Outlier.Held
	heldFor atomic.Pointer[string] // why, the last time; nil: for the last failure

	unreached atomic.Bool // the last failure was that it could not be connected to
	reached   atomic.Bool // it was connected to since it was ejected last

	// Guarded by outlier.mu.
	gone     bool  // it has not joined yet, or was removed
	count    int   // ejections on the account, when it was ejected last
	until    int64 // of the ejection
	returned int64 // end of the last ejection
	connects bool  // it is ejected because it could not be connected to
	well     bool  // it has answered a check since it was ejected
	haste    haste
}

// A rule is what a Member is judged by. It is replaced as a whole.
type rule struct {
	consecutive int32
	percent     float64
	volume      int
	window      *window
	span        int64 // what it counts, and for how long others than one source are witnesses
}

// NewOutlier returns an Outlier without endpoints.
func NewOutlier(k *Keeper, cfg *OutlierConfig) *Outlier {
	o := &Outlier{keeper: k, cfg: cfg}
	o.look()
	return o
}

// Configure replaces the configuration, under which the next failures are judged. A
// Member that exists takes it over by [Member.Configure], or at its next ejection's
// end. What is ejected stays so for as long as it was to, unless MaxEjected has become
// smaller.
func (o *Outlier) Configure(cfg *OutlierConfig) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.cfg, o.all = cfg, nil
	o.shrink(o.members)
	o.look()
}

// Add adds an endpoint, called subject in what is told of it.
func (o *Outlier) Add(subject string, t Target) *Member {
	m := o.NewMember(subject, t)
	o.Join(m)
	return m
}

// NewMember returns an endpoint, called subject in what is told of it, that is judged from
// [Outlier.Join] on. Until then it is not one of the Outlier's, which need not be told if
// it never will be.
func (o *Outlier) NewMember(subject string, t Target) *Member {
	m := &Member{outlier: o, subject: subject, target: t, gone: true}
	m.rule.Store(&lenient)
	return m
}

// lenient is the rule of those that are not judged yet.
var lenient rule

// Join adds endpoints that NewMember has made, each of them once.
func (o *Outlier) Join(members ...*Member) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, m := range members {
		m.gone = false
		m.rule.Store(o.rule())
	}
	o.members += len(members)
	o.look()
}

// rule returns what an endpoint is judged by: what all are, unless it has a window.
func (o *Outlier) rule() *rule {
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

// Ejected returns how many endpoints are ejected, of how many.
func (o *Outlier) Ejected() (ejected, of int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.ejected), o.members
}

// Held returns how many times an endpoint would have been ejected if MaxEjected had
// allowed it; each failure beyond that counts. Where there is one endpoint alone none does:
// clients have no other.
func (o *Outlier) Held() int64 { return o.held.Load() }

// HeldBack returns that of one endpoint, and why it would have been ejected, or the last failure
// that it would have been ejected for.
func (m *Member) HeldBack() (times int64, why string) {
	if cause := m.heldFor.Load(); cause != nil {
		return m.held.Load(), *cause
	}
	return m.held.Load(), m.last.String()
}

// holdBack counts that the endpoint is not ejected, for a cause or for its last failure.
func (m *Member) holdBack(cause *string) {
	if m.outlier.lone.Load() {
		return
	}
	m.heldFor.Store(cause)
	m.held.Add(1)
	m.outlier.held.Add(1)
}

// allowed returns how many of so many endpoints may be ejected at once. What a decimal
// fraction lacks as a binary one does not cost an ejection.
func (o *Outlier) allowed(members int) int {
	return min(int(math.Floor(o.cfg.MaxEjected*float64(members)+1e-9)), members)
}

// look finds out whether more may be ejected.
func (o *Outlier) look() {
	o.lone.Store(o.members <= 1)
	o.full.Store(len(o.ejected) >= o.allowed(o.members) && !slices.ContainsFunc(o.ejected, (*Member).recovered))
}

// recovered reports whether an ejected endpoint gives its place to one that fails. The
// outlier is locked.
func (m *Member) recovered() bool { return m.well }

// room reports whether one more may be ejected. If not, one that has recovered returns in its
// favor, the one whose time is over first.
func (o *Outlier) room(now int64) bool {
	if len(o.ejected) < o.allowed(o.members) {
		return true
	}
	var first *Member
	for _, m := range o.ejected {
		if m.recovered() && (first == nil || m.until < first.until) {
			first = m
		}
	}
	if first == nil {
		return false
	}
	first.back(now, "it answers its checks, and another one fails")
	return true
}

// shrink returns the endpoints that may not be ejected any more when there are so many
// members, those first whose time is over first.
func (o *Outlier) shrink(members int) {
	for len(o.ejected) > o.allowed(members) {
		first := slices.MinFunc(o.ejected, func(a, b *Member) int { return int(min(max(a.until-b.until, -1), 1)) })
		first.back(o.keeper.cfg.Now(), "too many are ejected")
	}
}
