package worker

import (
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/proxy/internal/compare"
)

// A Comparison is how the answers of a mirror are compared, and where the outcome goes. It is shared by all of its
// sessions, and safe for concurrent use.
type Comparison struct {
	plan   *compare.Plan
	budget *compare.Budget
	framed bool // answers have ends of their own
	report atomic.Pointer[compare.Report]
}

// NewComparison returns a comparison with an empty report. framed says that answers have ends of their own, and not
// only that of the connection. The budget is that of the process.
func NewComparison(plan *compare.Plan, framed bool, budget *compare.Budget) *Comparison {
	c := &Comparison{plan: plan, framed: framed, budget: budget}
	c.Reset()
	return c
}

// Report returns the report of the sessions that began since the last Reset.
func (c *Comparison) Report() *compare.Report { return c.report.Load() }

// Reset begins an empty report. Sessions that have begun go on with the one before.
func (c *Comparison) Reset() { c.report.Store(compare.NewReport()) }

// A comparing is the comparison of one session. It implements [relay.MirrorObserver].
type comparing struct {
	session *compare.Session // nil: there is none
	framed  bool
	dropped bool // the endpoint may have dropped answers at the client's end
}

// compare begins to compare the answers of the mirror, if it is to and there is memory.
func (m *mirroring) compare() {
	c := m.of.Compare
	if c == nil {
		return
	}
	m.comparing.framed = c.framed
	if m.comparing.session = c.plan.NewSession(c.budget, c.Report()); m.comparing.session != nil {
		m.comparing.session.Metered(m.worker.mirrors.meter)
		m.Observe(&m.comparing)
	}
}

// moved is called with bytes of the client that the endpoint got before the session.
func (c *comparing) moved(b []byte) {
	if c.session != nil && len(b) > 0 {
		c.session.Request(b, time.Now())
	}
}

// Sent implements [relay.MirrorObserver].
func (c *comparing) Sent(b []byte) { c.session.Request(b, time.Now()) }

// Skipped implements [relay.MirrorObserver].
func (c *comparing) Skipped(n int) { c.session.RequestSkipped(n) }

// SentAll implements [relay.MirrorObserver].
func (c *comparing) SentAll() { c.dropped = c.framed }

// Answered implements [relay.MirrorObserver].
func (c *comparing) Answered(b []byte) (more bool) {
	c.session.Primary(b, time.Now())
	return c.session.Stopped() == compare.Going
}

// ShadowAnswered implements [relay.MirrorObserver].
func (c *comparing) ShadowAnswered(b []byte) (more bool) {
	c.session.Shadow(b, time.Now())
	return c.session.Stopped() == compare.Going
}

// Ended implements [relay.MirrorObserver]. Framed answers are settled as they come. If the client has ended first, those
// that are not whole are no difference.
func (c *comparing) Ended(complete bool) {
	c.session.End(complete && !c.dropped, time.Now())
	c.session = nil
}
