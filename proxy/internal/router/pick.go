package router

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock/proxy/internal/clientkey"
	"github.com/penstock/penstock/proxy/internal/health"
	"github.com/penstock/penstock/proxy/internal/lb"
	"github.com/penstock/penstock/proxy/internal/proxyproto"
)

// pick acquires an endpoint to which every breaker lets the client through.
func (s *Search) pick(now int64) error {
	snap := s.snapshot
	set := snap.Set()
	if set == nil {
		return lb.ErrNoEndpoint
	}
	s.attempt = attempt{failed: s.failed[:0]}
	if err := s.enterBreaker(snap.upstream.panicking(set)); err != nil {
		return err
	}
	err := s.pickFrom(set, now)
	for err != nil && snap.Set() != set { // the set was replaced meanwhile, and its endpoints drain
		set = snap.Set()
		err = s.pickFrom(set, now)
	}
	if err == lb.ErrFull {
		s.suspendEntry(now)
	}
	return err
}

// errAgain says that a client has tried all endpoints that it could, and may try them again
// after a pause.
var errAgain = errors.New("every usable endpoint has been tried")

const (
	avoiding    pickPass = iota // any usable endpoint that [Search.avoids] does not report
	onlyWorking                 // endpoints that the last client could reach
	anyUsable
)

// A pickPass is a pass of a pick. The next pass follows if a pass finds no endpoint.
type pickPass uint8

func (p pickPass) eligible() lb.Eligibility {
	if p == onlyWorking {
		return lb.Working
	}
	return lb.Usable
}

// pickFrom picks from a set, in up to three passes. The set passes over endpoints that are ejected, down, draining or full:
// their bit is not in tier.open of package lb. If there are no others, endpoints that this client has tried are tried
// again after a pause, each a second time before any is tried a third time.
func (s *Search) pickFrom(set *lb.Set, now int64) error {
	tried, panicking := len(s.tried), s.snapshot.upstream.panicking(set)
	defer func() { s.tried = s.tried[:tried] }() // endpoints are appended only for this pick
	r := s.request(s.snapshot)
	pass, avoided := avoiding, 0
	for range 3*len(set.Members()) + maxAvoided + 3 {
		r.Eligible, r.Tried = pass.eligible(), s.tried[s.round:]
		e, err := set.Pick(&r)
		if err != nil && avoided > 0 && pass < anyUsable {
			s.tried = s.tried[:tried]
			pass++
			continue
		}
		if err == lb.ErrTried && s.round < tried {
			if err := s.mayTryAgain(); err != nil {
				return err
			}
			s.mayRetry, s.round = false, tried
			r.Tried = s.tried[s.round:]
			e, err = set.Pick(&r)
		}
		switch {
		case err != nil && s.passesAsStranger(set, now):
			return nil
		case err != nil:
			return err
		case pass == avoiding && (s.avoids(e, now) || s.loses(e, now)):
			e.Return()
			if avoided++; avoided == maxAvoided {
				pass = onlyWorking
			}
		case !panicking && s.trialInstead(e, set, now), s.admit(e, panicking, now):
			return nil
		}
		s.tried = append(s.tried, e)
	}
	return lb.ErrUnavailable
}

// mayTryAgain returns why the client may not try an endpoint a second time now.
func (s *Search) mayTryAgain() error {
	switch {
	case s.triesOnce():
		return lb.ErrUnavailable
	case s.snapshot.Backoff > 0 && !s.mayRetry:
		return errAgain
	}
	return nil
}

// triesOnce reports whether the client tries no endpoint twice: a fallback gets it at once, or an
// endpoint has refused it, or a failed connection took so long that only the last resort may try
// the same endpoint again.
func (s *Search) triesOnce() bool {
	snap := s.snapshot
	return snap.Fallback != nil || snap.Respond != nil ||
		slices.ContainsFunc(s.failures, func(f failure) bool { return f.turnedDown || f.ended-f.began >= int64(firstResent) })
}

// maxAvoided is how many endpoints are avoided individually. If there are more, the pick is among the endpoints that
// the last client could reach, until none is left.
const maxAvoided = 8

// avoids reports whether the client should get another endpoint than the picked one, if there is another. A client that
// could not reach an endpoint is not sent to an endpoint that the last client could not reach. If it has waited for a lost
// segment, it is not sent to an endpoint that no client has reached since, either, because it might wait there as long. An
// endpoint that is not ejected only because max_ejected has no room gets a new client only when another trial is due. No
// client is sent to an endpoint where a client waits, see silentToConnects.
func (s *Search) avoids(picked *lb.Endpoint, now int64) bool {
	e := picked.Of.(*Endpoint)
	if e.silentToConnects() {
		return true
	}
	if n := len(s.failures); n > 0 {
		last := &s.failures[n-1]
		lost := last.ended-last.began >= int64(firstResent)
		return e.Failing() || lost && e.trials.made.Load() < last.began
	}
	return e.Failing() && e.withheld(now, s.listener.cfg.Connect)
}

// firstResent is the time after which the first segment of a connection is sent again (RFC 6298, TCP_TIMEOUT_INIT of
// include/net/tcp.h).
const firstResent = time.Second

// losingEvery is the interval at which a client is sent to an endpoint that loses its clients, while there are others.
const losingEvery = 5 * time.Second

// loses reports whether a client should get another endpoint, because the picked one is usable but
// has lost its last clients: their connections were made, and ended without a byte. Such an
// endpoint is not ejected if max_ejected has no room, or if the lost clients come from few sources. Now
// and then a client tests whether the endpoint still loses clients. With a policy by source,
// losses of a few sources do not move other sources.
func (s *Search) loses(picked *lb.Endpoint, now int64) bool {
	e := picked.Of.(*Endpoint)
	if len(s.failures) > 0 || !e.losesClients(now, s.snapshot.BySource) {
		return false
	}
	at := e.trials.turn.Load()
	return at > now || !e.trials.turn.CompareAndSwap(at, now+int64(losingEvery))
}

// losesClients reports whether an endpoint that is not ejected has lost as many clients in a row as would eject it, see
// UnservedStreak. sure requires that the lost clients came from more than a few sources.
func (e *Endpoint) losesClients(now int64, sure bool) bool {
	m := e.monitor.Load()
	if m == nil || e.unserved.n.Load() < vainResorts {
		return false
	}
	fails, fewSources := m.FailsInARow(now)
	return fails && !(sure && fewSources)
}

// trialInstead replaces a picked endpoint that loses its clients by another endpoint, usable or not: for one client at a
// time, the endpoint that had its last client longest ago, until one of them serves a client. Otherwise endpoints that fail
// in turns would lose every client until the first ejection ends, because a check that only connects does not notice. An
// ejected endpoint that serves gives its place under max_ejected to the picked one, see [health.OutlierMonitor.Served].
func (s *Search) trialInstead(picked *lb.Endpoint, set *lb.Set, now int64) bool {
	of := picked.Of.(*Endpoint)
	if s.onlyLastResort || len(s.failures) > 0 || !of.losesClients(now, false) {
		return false
	}
	e := oldestTrial(of, set, now)
	if e == nil || !e.Endpoint.AcquireAnyway(false) {
		return false
	}
	if !s.admit(e.Endpoint, true, now) {
		return false
	}
	s.lastResort = e.unusable()
	picked.Return()
	return true
}

// passesAsStranger begins an attempt at an endpoint that only its breaker keeps from serving, if the client is to pass it, see
// [health.Breaker.Stranger].
func (s *Search) passesAsStranger(set *lb.Set, now int64) bool {
	for _, m := range set.Members() {
		st, b := m.Endpoint.State(), m.Endpoint.Of.(*Endpoint).breaker.Load()
		if st.Broken && !st.Down && !st.Ejected && !st.Draining && b != nil && !slices.Contains(s.tried, m.Endpoint) && b.Stranger(s.from()) && m.Endpoint.AcquireAnyway(false) {
			return s.admit(m.Endpoint, true, now)
		}
	}
	return false
}

// oldestTrial returns an unusable endpoint that has served its last client, or else the endpoint that had its last client
// longest ago, and claims the trial. It returns nil if that is the picked endpoint, or if trials of all endpoints may still
// be under way.
func oldestTrial(picked *Endpoint, set *lb.Set, now int64) *Endpoint {
	first := picked
	members := set.Members()
	for i := range members {
		member := members[i].Endpoint
		e := member.Of.(*Endpoint)
		if member.Failing() || !member.CanAcquireAnyway(false) {
			continue
		}
		if m := e.monitor.Load(); m != nil && m.ServedSince() {
			return e
		}
		_, silent := e.answers.Silence()
		if n, _ := e.SlowConnects(); n > 0 || silent || e.trials.retry.Load() > now {
			continue
		}
		if e.lastTrial() < first.lastTrial() {
			first = e
		}
	}
	if first == picked {
		return nil
	}
	at := first.trials.retry.Load()
	if at > now || !first.trials.retry.CompareAndSwap(at, now+int64(trialEvery)) {
		return nil
	}
	first.trials.retried.Store(now)
	return first
}

// lastTrial returns the clock at which the endpoint last lost a client, or a trial began.
func (e *Endpoint) lastTrial() int64 { return max(e.unserved.last.Load(), e.trials.retried.Load()) }

// admit begins an attempt at an acquired endpoint, if its breaker lets the client through or anyway is set. Otherwise it
// gives the endpoint back.
func (s *Search) admit(picked *lb.Endpoint, anyway bool, now int64) bool {
	e := picked.Of.(*Endpoint)
	if s.breaker = e.breaker.Load(); s.breaker != nil {
		permit, forced, refused := askBreaker(s.breaker, anyway)
		if refused != health.Granted {
			e.Return()
			return false
		}
		s.permit, s.forced = permit, forced
	}
	s.take(e, now)
	return true
}

func (s *Search) take(e *Endpoint, now int64) {
	s.endpoint, s.addrs, s.at, s.start, s.falls = e, e.fixed, 0, now, e.falls.Load()
	s.client.Record.Pick(e.name, now)
	if d := s.listener.cfg.Connect; d > 0 {
		s.end = now + int64(d)
	}
	if s.onlyLastResort && s.outOfPatience(now) {
		s.late++
	}
	if s.onlyLastResort && s.failing != 0 && e.Failing() { // not longer than clients are held
		if end := now + int64(max(s.patience(now), trialPending)); s.end == 0 || s.end > end {
			s.end = end
		}
	}
}

// request returns the input of a pick among the endpoints of snap. A client without the key of snap is hashed by its
// source, as if snap had no key.
func (s *Search) request(snap *UpstreamSnapshot) (r lb.Request) {
	if snap.BySource {
		r.Source = s.client.Source().AddrPort()
		r.Key = lb.KeyOf(s.valueOf(snap.HashKey))
	}
	return r
}

// unkeyed reports whether the client lacks the key by which its upstream picks.
func (s *Search) unkeyed() bool {
	k := s.snapshot.HashKey
	return k.Kind != clientkey.Source && s.snapshot.BySource && s.valueOf(k) == ""
}

// valueOf returns a property of the client, or "" if it is unknown. It does not know the client's source.
func (s *Search) valueOf(k clientkey.Key) string {
	switch k.Kind {
	case clientkey.SNI:
		if s.offloaded.conn() != nil {
			return strings.ToLower(s.offloaded.tls.ServerName)
		}
		return s.client.Hello.ServerName
	case clientkey.User:
		return cmp.Or(s.client.Postgres.User, s.client.First.User.Value)
	case clientkey.Database:
		return cmp.Or(s.client.Postgres.Database, s.client.First.Database.Value)
	case clientkey.TLV:
		value, _ := proxyproto.Find(s.client.Header.TLVs, proxyproto.Type(k.Type))
		return string(value)
	}
	return ""
}

// A breakerEntry is a client's way through the breaker of its upstream. The breaker lets a client
// through once, however often it retries, and gets one outcome: whether the client was served.
// Refusals by the breaker itself, by a limit, or for lack of a usable endpoint are not failures of
// a connection, and are not reported.
type breakerEntry struct {
	through bool // the breaker has let the client through, and it holds a place under its bounds
	forced  bool // in panic, let through by an open breaker
	permit  health.Permit

	// The outcome of the last attempt, if there was one.
	lastOutcome health.Outcome
	from        health.Source
	cause       string
}

// enterBreaker asks the upstream's breaker, unless it has let the client through.
func (s *Search) enterBreaker(panicking bool) error {
	b, entry := s.snapshot.Breaker, &s.entry
	if b == nil || entry.through {
		return nil
	}
	permit, forced, refused := askBreaker(b, panicking)
	if (refused == health.RefusedOpen || refused == health.RefusedTrials) && b.Stranger(s.from()) {
		permit, refused = b.Pass()
	}
	switch refused {
	case health.Granted:
		entry.through, entry.permit, entry.forced = true, permit, forced
		return nil
	case health.RefusedConnections, health.RefusedPending:
		return lb.ErrFull
	}
	return ErrCircuitOpen
}

// suspendEntry gives up the client's place in the upstream's breaker while the client waits for room at an endpoint.
// Then it enters again.
func (s *Search) suspendEntry(now int64) {
	entry := &s.entry
	if entry.through {
		if entry.permit.Trial() {
			s.snapshot.Breaker.Report(entry.permit, health.Unknown, now)
		}
		s.snapshot.Breaker.End(false)
	}
	*entry = breakerEntry{}
}

// exitBreaker ends the entry of a client that gets no endpoint here.
func (s *Search) exitBreaker(o health.Outcome, now int64) {
	entry, snap := &s.entry, s.snapshot
	if entry.through {
		if o.Failed() {
			snap.Breaker.SetCause(entry.cause)
		}
		if o != health.Unknown || entry.permit.Trial() {
			snap.Breaker.ReportFrom(entry.permit, entry.from, o, now)
		}
		snap.Breaker.End(false)
		snap.notifyRoom()
	}
	*entry = breakerEntry{}
}

// rest gives up the place of a client that may get a place again. The outcome of a failed trial is reported to the breaker
// at once, other outcomes in the end.
func (s *Search) rest(now int64) {
	entry := s.entry
	if entry.permit.Trial() && entry.lastOutcome.Failed() {
		s.exitBreaker(entry.lastOutcome, now)
		return
	}
	s.suspendEntry(now)
	if entry.through = false; !entry.permit.Trial() {
		s.entry = entry
	}
}

func (s *Search) conclude(now int64) {
	entry, b := s.entry, s.snapshot.Breaker
	s.exitBreaker(entry.lastOutcome, now)
	if !entry.through && entry.lastOutcome.Failed() && b != nil {
		b.SetCause(entry.cause)
		b.ReportFrom(entry.permit, entry.from, entry.lastOutcome, now)
	}
}

// note records the outcome of an attempt. For the upstream's breaker it makes no difference
// whether the endpoint was reached.
func (entry *breakerEntry) note(o health.Outcome, from health.Source, cause string) {
	if o.Failed() {
		o = health.ConnectFailed
	}
	entry.lastOutcome, entry.from, entry.cause = o, from, cause
}

// SetPanic sets the subject that is notified when the upstream begins and ends to use all of its endpoints, whatever their
// states; it may be nil. A panic is noticed when a verdict on an endpoint changes and, after other changes, by the next
// client.
func (u *Upstream) SetPanic(p *health.Panic) { u.panic.Store(p) }

// Panic reports whether the upstream uses all of its endpoints, whatever their states, and how many times it has begun to.
func (u *Upstream) Panic() (now bool, begun int64) {
	if p := u.panic.Load(); p != nil {
		begun = p.Begun.Load()
	}
	now, _, _ = u.seePanic()
	return now, begun
}

// panicking reports whether clients are sent to all endpoints of a set. Then the breakers of the
// upstream and of the endpoints let them pass, and only the limits apply: otherwise an endpoint
// that no client may try would never be found healthy.
func (u *Upstream) panicking(set *lb.Set) bool {
	on := set.Panicking()
	if p := u.panic.Load(); p != nil {
		p.Look(on, u.seePanic)
	}
	return on
}

func (u *Upstream) seePanic() (panicking bool, usable, all int) {
	set := u.set.Load()
	if set == nil {
		return false, 0, 0
	}
	st := set.Status()
	return st.Panic, st.UsablePrimaries, st.Primaries
}

// look finds out whether the upstream is in panic, after a change.
func (u *Upstream) look() {
	if set := u.set.Load(); set != nil {
		u.panicking(set)
	}
}

// askBreaker asks a breaker, or in panic only its bounds. forced means that the breaker would
// have refused the client.
func askBreaker(b *health.Breaker, panicking bool) (permit health.Permit, forced bool, refused health.Refusal) {
	if !panicking {
		permit, refused = b.Begin()
		return permit, false, refused
	}
	forced = b.State() == health.Open
	permit, refused = b.Pass()
	return permit, forced && !permit.Trial(), refused
}
