package router

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/penstock/penstock/proxy/internal/clientkey"
	"github.com/penstock/penstock/proxy/internal/health"
	"github.com/penstock/penstock/proxy/internal/record"
	"github.com/penstock/penstock/proxy/internal/tally"
	"github.com/penstock/penstock/proxy/internal/verdict"
	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/relay"
)

// A binding connects sessions with their endpoint, and holds their limits. Sessions of a listener with the same
// snapshot, endpoint and [KeyCount] share it, so it costs a session no memory. A session that is a breaker's trial has its
// own.
type binding struct {
	limits   relay.Limits
	listener *Listener
	snapshot *UpstreamSnapshot
	endpoint *Endpoint
	key      *KeyCount // of all its sessions; nil: they are not counted by a property of clients

	breaker                *health.Breaker // the endpoint's breaker that let the session through; nil: none
	permit, upstreamPermit health.Permit
	forced, upstreamForced bool        // in panic, let through by open breakers
	adopted                bool        // its sessions began in an earlier process
	resort                 bool        // its one session was a last resort
	counted                atomic.Bool // the client of the last resort was counted as served
	began                  int64       // clock, of a trial or a last resort
	reported               atomic.Bool // the outcome of the trial is reported

	from  health.Source // the client's source if the session is in the sample, else health.UnsampledSource
	named atomic.Pointer[[namedBindings]atomic.Pointer[binding]]
}

var _ worker.Binding = (*binding)(nil)

// bindingOf returns the binding of a session that one of the endpoint's breakers has let through, or that needed none
// (nil).
func (l *Listener) bindingOf(snap *UpstreamSnapshot, e *Endpoint, breaker *health.Breaker, count *KeyCount) *binding {
	key := bindingKey{snap, e, count}
	if b, ok := l.bindings.Load(key); ok && b.(*binding).breaker == breaker {
		return b.(*binding)
	}
	b := l.newBinding(snap, e, breaker, count)
	l.bindings.Store(key, b)
	if e.gone.Load() { // Forget may have passed before the Store
		l.bindings.Delete(key)
	}
	return b
}

type bindingKey struct {
	snapshot *UpstreamSnapshot
	endpoint *Endpoint
	count    *KeyCount
}

func (l *Listener) newBinding(snap *UpstreamSnapshot, e *Endpoint, breaker *health.Breaker, count *KeyCount) *binding {
	b := &binding{limits: l.limits, listener: l, snapshot: snap, endpoint: e, breaker: breaker, key: count}
	b.limits.Of, b.limits.FirstByteCame = b, b.firstByte
	if l.cfg.Preread.Postgres != nil {
		l.state.Cancels.note(l, snap, e)
	}
	return b
}

func (b *binding) Names() (upstream, endpoint string) {
	return b.snapshot.upstream.name, b.endpoint.name
}

// EndpointOf returns the endpoint of sessions with this binding, or nil for other types of bindings.
func EndpointOf(b worker.Binding) *Endpoint {
	switch b := b.(type) {
	case *binding:
		return b.endpoint
	case mirrorBinding:
		return b.endpoint
	}
	return nil
}

// Ended implements [worker.Binding]: health and breakers learn the outcome, places are given back, and the end is counted.
func (b *binding) Ended(loop int, r relay.Result, err error) {
	now, why := b.listener.now(), closeOf(&r, err)
	for _, a := range accounts(b.listener, b.snapshot, b.endpoint) {
		a.tally.Ended(loop, r.Duration, why)
	}
	o, from := outcomeOf(&r, err), b.from
	if o == health.Reset && b.snapshot.SendProxy > 0 { // it has had the client's PROXY header
		o = health.Rejected
	}
	if b.adopted && r.BToA.Bytes() == 0 { // the endpoint has answered in the earlier process
		o = health.Unknown
	} else {
		b.endpoint.settled(&r, from, lost(&r, err), now)
	}
	if o == health.OK && r.BToA.Bytes() == 0 {
		from = health.UnsampledSource // the source is no witness for the endpoint
		b.noteServed(now)
	}
	if !b.reported.Swap(b.trial()) {
		b.report(from, o, now)
	}
	if b.snapshot.Breaker != nil {
		b.snapshot.Breaker.End(true)
	}
	if b.breaker != nil {
		b.breaker.End(true)
	}
	b.endpoint.upstream.sessions.Add(-1)
	b.endpoint.Release()
	b.snapshot.notifyRoom()
}

// trial reports whether this is the binding of a trial, or of a client that has passed an open
// breaker. Such a binding has one session.
func (b *binding) trial() bool {
	return b.permit.Trial() || b.upstreamPermit.Trial() || b.forced || b.upstreamForced
}

func (b *binding) report(from health.Source, o health.Outcome, now int64) {
	b.endpoint.ended(o, now)
	b.endpoint.report(b.permit, from, o, now)
	if b.snapshot.Breaker != nil {
		b.snapshot.Breaker.ReportFrom(b.upstreamPermit, from, o, now)
	}
	if o == health.OK {
		b.better("a client was served by it")
	}
}

// better reports a success of the endpoint to the open breakers that the client has passed.
func (b *binding) better(what string) {
	if b.forced {
		b.breaker.Improved(what)
	}
	if b.upstreamForced {
		b.snapshot.Breaker.Improved(what)
	}
}

// lasts is called now and then while a trial goes on. In many protocols a healthy endpoint sends nothing. So, unless an
// answer is required, the trial succeeds once it has lasted so long that its end would not count as a failure.
func (b *binding) lasts(now int64) {
	if b.limits.FirstByte > 0 || now-b.began < int64(silentCloseWindow) || b.reported.Swap(true) {
		return
	}
	if b.permit.Trial() {
		b.breaker.Report(b.permit, health.OK, now)
	}
	if b.upstreamPermit.Trial() {
		b.snapshot.Breaker.Report(b.upstreamPermit, health.OK, now)
	}
	b.better("a client's connection to it lasts")
}

// notifyRoom wakes clients that wait because of the upstream's own limit. An endpoint's set wakes the clients that wait for
// room at the endpoint.
func (snap *UpstreamSnapshot) notifyRoom() {
	if snap.Breaker != nil {
		snap.upstream.Room()
	}
}

// outcomeOf returns the outcome of an ended session for its endpoint. An early first byte does not count if the session
// ended in silence: an endpoint that stands still has many such sessions, and they must not interrupt a series of failures.
func outcomeOf(r *relay.Result, err error) health.Outcome {
	switch {
	case r.First != relay.SideB || r.BToA.Bytes() > 0:
	case r.Duration > silentCloseWindow:
		return health.Unknown
	default:
		return health.HungUp
	}
	if r.BToA.Bytes() == 0 && lost(r, err) {
		return health.Lost
	}
	switch r.Reason {
	case relay.ReasonIdle, relay.ReasonHalfClose, relay.ReasonError, relay.ReasonCanceled:
		return health.Unknown
	}
	switch {
	case r.BToA.Bytes() > 0 || r.BToA.Reason == relay.ReasonEOF:
		return health.OK
	case r.Reason == relay.ReasonFirstByte:
		return health.Silent
	case r.Reason != relay.ReasonReset || r.Culprit != relay.SideB:
		return health.Unknown
	case r.AToB.Bytes() > 0 || r.AToB.Reason == relay.ReasonEOF:
		return health.Rejected
	}
	return health.Reset
}

// lost reports whether a session ended because TCP gave up the endpoint's connection, or could not send to it any more.
// ECONNABORTED is an operator's ss -K.
func lost(r *relay.Result, err error) bool {
	if r.Reason != relay.ReasonError || r.Culprit != relay.SideB {
		return false
	}
	var errno syscall.Errno // on the heap
	return errors.As(err, &errno) && errno != syscall.ECONNABORTED && !slices.Contains(localFaults[:ownFaults], errno)
}

// silentCloseWindow: an endpoint that ends a session within this time without having sent a byte has failed. Healthy
// servers end sessions of silent clients only later.
const silentCloseWindow = 5 * time.Second

// Answers returns the counts of the endpoint's answers.
func (e *Endpoint) Answers() *health.Answers { return &e.answers }

func (b *binding) Watch(t relay.Turn, now int64) {
	b.endpoint.answers.Watch(b.from, &t, now)
	if b.trial() {
		b.lasts(now)
	}
}

func (b *binding) firstByte(took time.Duration, asked bool) {
	now := b.listener.now()
	b.endpoint.spoke()
	b.noteServed(now)
	if b.resort {
		b.heard()
	}
	if b.trial() && !b.reported.Swap(true) { // the trial has succeeded, however long the session lasts
		b.report(b.from, health.OK, now)
	}
	b.endpoint.answers.First(took, asked, now)
}

// settled counts the end of a session: whether it was answered, and whether the endpoint ended it (a sign of life) or a
// client that got no answer.
func (e *Endpoint) settled(r *relay.Result, from health.Source, lost bool, now int64) {
	if r.BToA.Bytes() > 0 {
		e.answers.Served(r.Duration)
	}
	switch {
	case r.Reason == relay.ReasonCanceled:
	case r.First == relay.SideB || r.Culprit == relay.SideB && !lost:
		e.answers.Ended(now)
	case r.BToA.Bytes() == 0 && r.AToB.Bytes() > 0:
		e.answers.Left(from, r.Duration, now)
	}
}

// An account adds up the sessions of a listener, an upstream or an endpoint.
type account struct {
	meter
	tally  tally.Tally
	judged [verdict.Kinds]atomic.Int64 // the time of ended sessions, by the cause that limited it, in microseconds
}

// Limited returns the time of ended sessions, in seconds, by the cause that limited them. It leaves out sessions
// that were too short for a verdict.
func (a *account) Limited() (seconds [verdict.Kinds]float64) {
	for k := range a.judged {
		seconds[k] = float64(a.judged[k].Load()) / 1e6
	}
	return seconds
}

func (a *account) Tally() tally.Counts { return a.tally.Read() }

// accounts returns the accounts to which a session of a listener with an endpoint counts.
func accounts(l *Listener, snap *UpstreamSnapshot, e *Endpoint) [3]*account {
	return [3]*account{&l.state.account, &snap.upstream.account, &e.account}
}

// Judged notes the verdict on an ended session, over all its time, for its listener, upstream and endpoint. It does nothing
// for bindings of other types. It is safe for concurrent use.
func Judged(b worker.Binding, v *verdict.Verdict, lasted time.Duration) {
	of, ok := b.(*binding)
	if !ok {
		return
	}
	for k, share := range v.Shares {
		if us := int64(share * float64(lasted.Microseconds())); us > 0 {
			for _, a := range accounts(of.listener, of.snapshot, of.endpoint) {
				a.judged[k].Add(us)
			}
		}
	}
}

// A meter adds up the bytes of sessions that have ended.
type meter struct{ bytes tally.Bytes }

// Bytes returns the bytes of ended sessions, see [worker.Group.Metered].
func (m *meter) Bytes() worker.Bytes { return m.bytes.Load() }

func (b *binding) Moved(bytes worker.Bytes) {
	for _, a := range accounts(b.listener, b.snapshot, b.endpoint) {
		a.bytes.Count(bytes)
	}
	if b.key != nil {
		b.key.bytes.Count(bytes)
	}
}

// An originalDst is the binding of sessions to the original destination of clients, or to an unknown endpoint.
type originalDst struct {
	state    *ListenerState
	upstream string // the session's upstream, if its endpoint is not known
}

func (o originalDst) Ended(loop int, r relay.Result, err error) {
	o.state.tally.Ended(loop, r.Duration, closeOf(&r, err))
}

func (originalDst) Watch(relay.Turn, int64) {}

func (o originalDst) Names() (upstream, endpoint string) { return o.upstream, "" }

func (o originalDst) Moved(bytes worker.Bytes) { o.state.bytes.Count(bytes) }

// Running holds the bytes of running sessions, by binding.
type Running struct {
	Listeners map[*ListenerState]worker.Bytes
	Upstreams map[*Upstream]worker.Bytes
	Endpoints map[*Endpoint]worker.Bytes
	Keys      map[*KeyCount]worker.Bytes
}

// NewRunning adds up the running bytes that [worker.Group.Metered] passes.
func NewRunning(moved map[worker.Binding]*worker.Bytes) *Running {
	r := &Running{make(map[*ListenerState]worker.Bytes), make(map[*Upstream]worker.Bytes), make(map[*Endpoint]worker.Bytes), make(map[*KeyCount]worker.Bytes)}
	for b, bytes := range moved {
		switch b := b.(type) {
		case *binding:
			put(r.Listeners, b.listener.state, bytes)
			put(r.Upstreams, b.snapshot.upstream, bytes)
			put(r.Endpoints, b.endpoint, bytes)
			if b.key != nil {
				put(r.Keys, b.key, bytes)
			}
		case originalDst:
			put(r.Listeners, b.state, bytes)
		}
	}
	return r
}

func put[K comparable](sums map[K]worker.Bytes, key K, bytes *worker.Bytes) {
	sum := sums[key]
	sum.Add(*bytes)
	sums[key] = sum
}

// closeOf returns the reason for which a session ended, with an error or nil; its a is the client.
func closeOf(r *relay.Result, err error) tally.Close {
	switch r.Reason {
	case relay.ReasonEOF:
		return bySide(r.First, tally.ClientClosed, tally.EndpointClosed)
	case relay.ReasonReset:
		return bySide(r.Culprit, tally.ClientReset, tally.EndpointReset)
	case relay.ReasonError:
		return bySide(r.Culprit, tally.ClientFailed, tally.EndpointFailed)
	case relay.ReasonIdle:
		return tally.Idle
	case relay.ReasonHalfClose:
		return tally.HalfClose
	case relay.ReasonLifetime:
		return tally.Lifetime
	case relay.ReasonFirstByte:
		return tally.FirstByte
	case relay.ReasonCanceled:
		if errors.Is(err, record.ErrOperator) {
			return tally.Operator
		}
		return tally.Canceled
	}
	return tally.Other
}

func bySide(side relay.Side, client, endpoint tally.Close) tally.Close {
	switch side {
	case relay.SideA:
		return client
	case relay.SideB:
		return endpoint
	}
	return tally.Other
}

// A KeyCount counts the sessions with one value of a property of clients.
type KeyCount struct {
	meter
	Sessions atomic.Int64 // that have begun
}

// KeyCounts count the sessions of a listener by a property of their clients: one count for each configured value, one
// for all other values, and one for clients without a value. So clients cannot make them grow.
type KeyCounts struct {
	key            clientkey.Key
	Of             map[string]*KeyCount // by value; not changed
	Other, Unknown *KeyCount            // sessions with another value, and without a value
}

// NewKeyCounts returns the counts of some values. If before is not nil, its counts of the same property are continued.
func NewKeyCounts(key clientkey.Key, values []string, before *KeyCounts) *KeyCounts {
	c := &KeyCounts{key: key, Of: make(map[string]*KeyCount, len(values)), Other: new(KeyCount), Unknown: new(KeyCount)}
	same := before != nil && before.key == key
	if same {
		c.Other, c.Unknown = before.Other, before.Unknown
	}
	for _, v := range values {
		if same && before.Of[v] != nil {
			c.Of[v] = before.Of[v]
		} else {
			c.Of[v] = new(KeyCount)
		}
	}
	return c
}

// count returns the count for a session that begins; nil: it is not counted.
func (s *Search) count() *KeyCount {
	by := s.listener.cfg.ByKey
	if by == nil {
		return nil
	}
	value := s.valueOf(by.key)
	c := by.Of[value]
	switch {
	case value == "":
		c = by.Unknown
	case c == nil:
		c = by.Other
	}
	c.Sessions.Add(1)
	return c
}

// A sample selects the connections to an endpoint whose sources are recorded: the first of each
// second, and some others at random, so that a fast source cannot take all places. Other
// connections cost nothing.
type sample struct {
	word atomic.Uint64 // the second and, in the lowest bits, how many of its connections were taken
}

const (
	sampleFirst = 16
	sampleOneIn = 4

	sampleBits = 8
	sampleMask = 1<<sampleBits - 1
)

func (s *sample) take(now int64) bool {
	second := uint64(now/1e9) << sampleBits
	for {
		switch word := s.word.Load(); {
		case word < second: // another loop with a clock ahead has begun the later second
			if s.word.CompareAndSwap(word, second|1) {
				return true
			}
		case word&sampleMask >= sampleFirst:
			return rand.Uint32()%sampleOneIn == 0
		case s.word.CompareAndSwap(word, word+1):
			return true
		}
	}
}

// namedBindings is how many bindings of sources are kept for clients that come again.
const namedBindings = 8

// sampled returns the binding of a session. If the session belongs to the sample, it is a binding
// of the client's source.
func (s *Search) sampled(b *binding, now int64) *binding {
	judged := s.breaker != nil || s.snapshot.Breaker != nil || s.endpoint.monitor.Load() != nil
	if !judged || !s.endpoint.sample.take(now) {
		return b
	}
	return b.of(s.from())
}

func (s *Search) from() health.Source {
	return health.SourceOf(s.client.Source(), s.listener.cfg.SourcePrefix)
}

// of returns a binding like b for a source: an old one if the source is among the latest sources, otherwise a new one.
func (b *binding) of(from health.Source) *binding {
	named := b.named.Load()
	if named == nil {
		b.named.CompareAndSwap(nil, new([namedBindings]atomic.Pointer[binding]))
		named = b.named.Load()
	}
	place := &named[from%namedBindings]
	if of := place.Load(); of != nil && of.from == from {
		return of
	}
	of := b.listener.newBinding(b.snapshot, b.endpoint, b.breaker, b.key)
	of.from = from
	of.limits.Answered = of.heard
	place.Store(of)
	return of
}

// heard is called when the endpoint of a sampled session has sent a byte in time. It does not wait for the end, because the
// session may last for days.
func (b *binding) heard() {
	now := b.listener.now()
	if m := b.endpoint.monitor.Load(); m != nil {
		m.GotData(b.from, now)
	}
	for _, breaker := range []*health.Breaker{b.endpoint.breaker.Load(), b.snapshot.Breaker} {
		if breaker != nil {
			breaker.GotData(b.from, now)
		}
	}
}
