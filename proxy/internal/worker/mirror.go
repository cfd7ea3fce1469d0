package worker

import (
	"container/list"
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/proxy/internal/compare"
	"github.com/penstock/penstock/proxy/internal/tally"
	"github.com/penstock/penstock/proxy/sockopt"
	"github.com/penstock/penstock/relay"
	"github.com/penstock/penstock/relay/driver"
)

// A Mirror is an endpoint of another upstream that also gets the bytes that one client sends. It is not changed after
// [Search.Mirror] has returned it.
type Mirror struct {
	// Binding is the endpoint, for [Group.CutMatching]. No session is reported to it.
	Binding Binding
	// Addresses are the addresses to connect to, in order; none: Host is looked up by Resolver.
	Addresses []loop.Address
	Host      string
	Port      uint16
	Resolver  Resolver
	// Circle is [Search.Circle] of one of the addresses; it may be nil.
	Circle func(at loop.Address, fd int, connected bool) error
	// Source is the local address to connect from, if valid. Timeout bounds the look-up and each connect; 0: the kernel's
	// timeout.
	Source  netip.Addr
	Timeout time.Duration
	// Congestion is the congestion control of the socket; nil: the system's.
	Congestion *sockopt.Congestion
	// Header is sent before the client's bytes.
	Header []byte
	// Patience is how long bytes may wait, see [relay.Driver.StartMirror].
	Patience time.Duration
	// Compare is how the endpoint's answers are compared with the client's; nil: they are thrown away.
	Compare *Comparison
	// Counts gets the result.
	Counts *MirrorCounts
	// Ended is called once, at the end, on the loop's goroutine. It must not wait.
	Ended func()
}

// Further reasons, beside [driver.MirrorReason], for which a session has no mirror, or no longer has one.
const (
	MirrorNoEndpoint  = "no_endpoint" // the upstream has no usable endpoint
	MirrorFull        = "full"        // every usable endpoint is at its limit
	MirrorDescriptors = "descriptors" // descriptors are short
)

// A mirroring is a mirror of a session of a worker.
type mirroring struct {
	relay.Mirror
	loop.Dial
	comparing comparing
	of        *Mirror
	at        *list.Element // of the worker's mirrors
	worker    *worker
	serving   *serving
	cfg       loop.DialConfig
	addresses []loop.Address
	trying    int                // index of the present connect in addresses
	lookup    context.CancelFunc // nil: no name is looked up
	short     bool               // it must give up its descriptors
	over      bool
	counted   driver.MirrorResult // what of.Counts has counted
}

// mirrors are a worker's mirrors, of sessions that run or have just ended.
type mirrors struct {
	list.List
	census loop.Timer // armed while there are any
	meter  *compare.Meter
}

// eachMirror calls do for the first number mirrors, some in each turn, and moves each to the end of the list. At the end it
// calls over.
func (w *worker) eachMirror(number int, do func(m *mirroring), over func()) {
	for began := time.Now(); number > 0 && w.mirrors.Len() > 0; number-- {
		if time.Since(began) > turnTime {
			w.post(func() { w.eachMirror(number, do, over) })
			return
		}
		first := w.mirrors.Front()
		w.mirrors.MoveToBack(first)
		do(first.Value.(*mirroring))
	}
	over()
}

// mirror begins the mirror of a session, and returns nil if there is none. moved are the bytes that the session's endpoint
// has already.
func (w *worker) mirror(by Search, s *serving, moved []byte) *mirroring {
	of := by.Mirror(w.loop.Now())
	if of == nil {
		return nil
	}
	if w.short() {
		of.Counts.Skip(MirrorDescriptors)
		of.Ended()
		return nil
	}
	m := &mirroring{of: of, worker: w, serving: s, addresses: of.Addresses}
	m.cfg = loop.DialConfig{Timeout: of.Timeout, Source: of.Source, Control: m.control}
	atomic.AddInt64(&of.Counts.counts.Running, 1)
	m.at = w.mirrors.PushBack(m)
	if !w.mirrors.census.Armed() {
		w.loop.Arm(&w.mirrors.census, (*censusTimer)(w), mirrorCensus)
	}
	w.driver.StartMirror(&m.Mirror, of.Patience, m)
	m.compare()
	m.Write(of.Header)
	m.comparing.moved(moved)
	m.Write(moved)
	return m
}

// relay returns the mirror for the session's socket.
func (m *mirroring) relay() *relay.Mirror {
	if m == nil {
		return nil
	}
	return &m.Mirror
}

// reach begins to look for the endpoint, once the session has moved its first bytes.
func (m *mirroring) reach() {
	switch {
	case m == nil, m.over:
	case len(m.addresses) == 0:
		m.lookup = m.worker.lookUp(m.of.Resolver, m.of.Host, m.of.Timeout, m.resolved)
	default:
		m.connect()
	}
}

// short reports whether descriptors are short.
func (w *worker) short() bool {
	g := w.group
	return g.gate.holds.Load() > 0 || g.paused.Load() > 0
}

// control is called with the socket to the mirror's endpoint. Descriptors that are reserved for
// clients are open then, so a mirror does not get the last one.
func (m *mirroring) control(fd int, _ string) error {
	if err := m.worker.group.control(); err != nil {
		return err
	}
	if err := m.circle(fd, false); err != nil {
		return err
	}
	if fd >= m.worker.line {
		return syscall.EMFILE
	}
	m.of.Congestion.Set(fd)
	return m.serving.service.Options.First(fd)
}

func (m *mirroring) connect() {
	m.worker.loop.Connect(&m.Dial, whichEndpoint, m.addresses[m.trying], &m.cfg, m)
}

func (m *mirroring) circle(fd int, connected bool) error {
	if m.of.Circle == nil {
		return nil
	}
	return m.of.Circle(m.addresses[m.trying], fd, connected)
}

// Connected implements [loop.Connector].
func (m *mirroring) Connected(_ *loop.Dial, fd int, id loop.ID, events loop.Events, err error) {
	if err == nil && m.addresses[m.trying].Path != "" {
		if err = m.circle(fd, true); err != nil {
			m.worker.loop.Drop(id)
			resetSocket(fd)
		}
	}
	switch {
	case err == nil:
		m.Mirror.Connected(relay.Socket{FD: fd, ID: id, Events: events, TCP: m.addresses[m.trying].Path == ""})
	case LacksDescriptor(err):
		m.short = true
		m.Refused(err)
	case m.trying+1 < len(m.addresses):
		m.trying++
		m.connect()
	default:
		m.Refused(err)
	}
}

func (m *mirroring) resolved(ips []netip.Addr, err error) {
	if m.over {
		return
	}
	m.stopLookup()
	for _, ip := range ips {
		m.addresses = append(m.addresses, loop.Address{AddrPort: netip.AddrPortFrom(ip.Unmap(), m.of.Port)})
	}
	switch {
	case err != nil:
		m.Refused(err)
	case len(m.addresses) == 0:
		m.Refused(errors.New("the name has no addresses"))
	default:
		m.connect()
	}
}

func (m *mirroring) stopLookup() {
	if m.lookup != nil {
		m.lookup()
		m.lookup = nil
	}
}

// MirrorEnded implements [relay.MirrorOwner].
func (m *mirroring) MirrorEnded(_ *relay.Mirror, res driver.MirrorResult) {
	m.over = true
	m.stopLookup()
	m.Cancel()
	m.worker.mirrors.Remove(m.at)
	reason := res.Reason.String()
	if m.short || LacksDescriptor(res.Err) {
		reason = MirrorDescriptors
	}
	m.count(res)
	m.of.Counts.answer(&res)
	atomic.AddInt64(&m.of.Counts.counts.Running, -1)
	m.of.Counts.Skip(reason)
	m.of.Ended()
}

// cutMirrors ends the worker's mirrors.
func (w *worker) cutMirrors() {
	for w.mirrors.Len() > 0 {
		w.mirrors.Front().Value.(*mirroring).Cut()
	}
}

// shedMirrors ends mirrors because descriptors are short, as many as one turn has time for,
// and reports whether there were any.
func (w *worker) shedMirrors() bool {
	any := w.mirrors.Len() > 0
	for began := time.Now(); w.mirrors.Len() > 0 && time.Since(began) < turnTime; {
		m := w.mirrors.Front().Value.(*mirroring)
		m.short = true
		m.Cut()
	}
	return any
}

// shedMirrors makes all workers give up mirrors, because descriptors are short.
func (g *Group) shedMirrors() {
	for _, w := range g.workers {
		w.post(func() { w.shedMirrors() })
	}
}

// cutMirrorsMatching ends the mirrors that match, some in each turn of their loop, and returns when it has looked at
// all, or the group has ended.
func (g *Group) cutMirrorsMatching(match Match) {
	if !g.started.Load() {
		return
	}
	onAll(g, func(w *worker, over func(any)) {
		w.eachMirror(w.mirrors.Len(), func(m *mirroring) {
			if match(m.serving.socket, m.of.Binding) {
				m.Cut()
			}
		}, func() { over(nil) })
	}, func(any) {})
}

// mirrorReasons are the reasons for which a mirror has ended, or a session got no mirror.
var mirrorReasons = []string{
	driver.MirrorComplete.String(), driver.MirrorBehind.String(), driver.MirrorLate.String(), driver.MirrorConnect.String(),
	driver.MirrorReset.String(), driver.MirrorPipe.String(), driver.MirrorCut.String(), driver.MirrorError.String(),
	MirrorNoEndpoint, MirrorFull, MirrorDescriptors,
}

// MirrorCounts counts the mirrors of a listener's sessions. It is safe for concurrent use.
type MirrorCounts struct {
	counts tally.MirrorCounts // by atomic.AddInt64
	ended  *tally.Reasons
	reset  atomic.Pointer[MirrorTotals] // as they were at the last reset; nil: there was none
}

// NewMirrorCounts returns counts without mirrors.
func NewMirrorCounts() *MirrorCounts {
	return &MirrorCounts{ended: tally.NewReasons(mirrorReasons...)}
}

// MirrorTotals are the values of [MirrorCounts].
type MirrorTotals struct {
	tally.MirrorCounts
	// Ended counts mirrors that have ended, or could not begin, by reason.
	Ended map[string]int64
	// Since is the last reset; zero: there was none, or the totals are since the listener began.
	Since time.Time
}

// Skip counts a session that should have a mirror but has none.
func (c *MirrorCounts) Skip(reason string) {
	if i := slices.Index(mirrorReasons, reason); i >= 0 {
		c.ended.Add(i)
	}
}

// answer counts whether the endpoint of a complete mirror has answered anything: the kernel of a frozen endpoint takes
// everything too.
func (c *MirrorCounts) answer(res *driver.MirrorResult) {
	switch {
	case res.Answered > 0:
		atomic.StoreInt64(&c.counts.Silent, 0)
	case res.Reason == driver.MirrorComplete:
		atomic.AddInt64(&c.counts.Unanswered, 1)
		atomic.AddInt64(&c.counts.Silent, 1)
	}
}

// add adds the bytes that a mirror has moved since before.
func (c *MirrorCounts) add(res, before *driver.MirrorResult) {
	atomic.AddInt64(&c.counts.Teed, res.Teed-before.Teed)
	atomic.AddInt64(&c.counts.Copied, res.Copied-before.Copied)
	atomic.AddInt64(&c.counts.Undelivered, res.Undelivered-before.Undelivered)
	atomic.AddInt64(&c.counts.Answered, res.Answered-before.Answered)
}

// mirrorCensus is how often the bytes of mirrors that run are counted.
const mirrorCensus = time.Second

// A censusTimer is a worker that counts its mirrors from time to time, while there are any.
type censusTimer worker

// Expired implements [loop.Expirer].
func (t *censusTimer) Expired(*loop.Timer) {
	w := (*worker)(t)
	w.eachMirror(w.mirrors.Len(), func(m *mirroring) { m.count(m.Result()) }, func() {
		if w.mirrors.Len() > 0 {
			w.loop.Arm(&w.mirrors.census, t, mirrorCensus)
		}
	})
}

// count counts the mirror's bytes since the last count.
func (m *mirroring) count(res driver.MirrorResult) {
	m.of.Counts.add(&res, &m.counted)
	m.counted = res
}

// Totals returns the present values. every includes reasons that did not occur.
func (c *MirrorCounts) Totals(every bool) MirrorTotals {
	return MirrorTotals{MirrorCounts: tally.Load(&c.counts), Ended: c.ended.ByReason(every)}
}

// SinceReset returns the values since the last reset, without reasons that did not occur. reset makes it count from now on; then
// it also counts the end of running mirrors, and their bytes that were not counted yet.
func (c *MirrorCounts) SinceReset(reset bool) MirrorTotals {
	before := c.reset.Load()
	t := c.Totals(false)
	if reset {
		now := t
		now.Ended = maps.Clone(t.Ended)
		now.Since, now.Running, now.Silent = time.Now(), 0, 0 // these two are present values
		c.reset.Store(&now)
	}
	if before == nil {
		return t
	}
	t.Since = before.Since
	for reason := range t.Ended {
		if t.Ended[reason] -= before.Ended[reason]; t.Ended[reason] == 0 {
			delete(t.Ended, reason)
		}
	}
	tally.Add(&t.MirrorCounts, &before.MirrorCounts, -1)
	return t
}

// A Comparison says how the answers of a mirror are compared, and collects the results. All sessions of the mirror
// share it; it is safe for concurrent use.
type Comparison struct {
	plan   *compare.Plan
	budget *compare.Budget
	framed bool // the end of an answer can be seen, see NewComparison
	report atomic.Pointer[compare.Report]
}

// NewComparison returns a comparison with an empty report. framed says that the end of an answer
// can be seen before the end of the connection. The budget belongs to the whole process.
func NewComparison(plan *compare.Plan, framed bool, budget *compare.Budget) *Comparison {
	c := &Comparison{plan: plan, framed: framed, budget: budget}
	c.report.Store(compare.NewReport())
	return c
}

// Report returns the report of the sessions that began since the last Reset.
func (c *Comparison) Report() *compare.Report { return c.report.Load() }

// Reset begins an empty report, and returns the old one, with which sessions that have begun go on.
func (c *Comparison) Reset() *compare.Report { return c.report.Swap(compare.NewReport()) }

// A comparing is the comparison of one session. It implements [driver.MirrorObserver].
type comparing struct {
	session *compare.Session // nil: nothing is compared
	framed  bool
	dropped bool // the endpoint may have dropped answers at the client's end
}

// compare begins to compare the answers of the mirror, if this is configured and there is memory.
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

// moved is called with the client's bytes that the endpoint got before the session.
func (c *comparing) moved(b []byte) {
	if c.session != nil && len(b) > 0 {
		c.session.Request(b, time.Now())
	}
}

// Sent implements [driver.MirrorObserver].
func (c *comparing) Sent(b []byte) { c.session.Request(b, time.Now()) }

// Skipped implements [driver.MirrorObserver].
func (c *comparing) Skipped(n int) { c.session.RequestSkipped(n) }

// SentAll implements [driver.MirrorObserver].
func (c *comparing) SentAll() { c.dropped = c.framed }

// Answered implements [driver.MirrorObserver].
func (c *comparing) Answered(b []byte) (more bool) {
	c.session.Primary(b, time.Now())
	return c.session.Stopped() == compare.Going
}

// ShadowAnswered implements [driver.MirrorObserver].
func (c *comparing) ShadowAnswered(b []byte) (more bool) {
	c.session.Shadow(b, time.Now())
	return c.session.Stopped() == compare.Going
}

// Ended implements [driver.MirrorObserver]. Framed answers are settled as they come. If the client ended first, incomplete
// answers do not differ.
func (c *comparing) Ended(complete bool) {
	c.session.End(complete && !c.dropped, time.Now())
	c.session = nil
}

// rewritesClient reports whether client bytes are rewritten: then none go to the endpoint before the session.
func rewritesClient(s Search) bool { return s.Rewritten() == relay.SideA }

// rewrite attaches the rewriter to a, the client's socket, or to b, the endpoint's. It allocates, so sessions without a
// rewriter do not come here.
func rewrite(by Search, a, b relay.Socket) (relay.Socket, relay.Socket) {
	if by.Rewritten() == relay.SideB {
		by.Rewrite(&b)
	} else {
		by.Rewrite(&a)
	}
	return a, b
}
