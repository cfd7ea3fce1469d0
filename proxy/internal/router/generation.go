package router

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock/proxy/clienthello"
	"github.com/penstock/penstock/proxy/internal/firstbytes"
	"github.com/penstock/penstock/proxy/internal/health"
	"github.com/penstock/penstock/proxy/internal/match"
	"github.com/penstock/penstock/proxy/internal/proxyproto"
	"github.com/penstock/penstock/proxy/internal/record"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// inForce returns the generation of rules that applies to a client now: the newest generation of
// the listener that now has the address at which the client came in. If no listener has it, the
// last generation of the client's own listener applies.
func (l *Listener) inForce(c *worker.Client) *Listener {
	state := l.state
	if l.cfg.StateOf != nil {
		if owner := l.cfg.StateOf(c); owner != nil {
			state = owner
		}
	}
	if now := state.current.Load(); now != nil {
		return now
	}
	return l
}

// ruling returns the one or two generations that rule over a client now: the generation in force and, during a reload, the
// next one.
func (l *Listener) ruling(c *worker.Client) (by [2]*Listener) {
	if l.cfg.Rules != nil {
		by[0], by[1] = l.cfg.Rules(c)
	}
	if by[0] == nil {
		by[0] = l.inForce(c)
	}
	return by
}

// admits returns the reason why this generation does not admit a client that came under
// another one: its PROXY header is not accepted, or is missing, or its source is not
// allowed.
func (l *Listener) admits(c *worker.Client) error {
	if err := l.takes(c); err != nil {
		return err
	}
	return l.allows(c)
}

// allows returns why the rules of access keep a client out.
func (l *Listener) allows(c *worker.Client) error {
	if err := l.denies(c); err != nil {
		return err
	}
	if !l.cfg.Access.Limits() {
		return nil
	}
	return l.cfg.Access.Check(c.Source())
}

// denies returns why an operator keeps a client out.
func (l *Listener) denies(c *worker.Client) error {
	if !l.cfg.Denials.Any() {
		return nil
	}
	return l.cfg.Denials.Check(l.cfg.Name, c.Source())
}

// takes returns why a client's header, or the lack of one, is not accepted; nil: it is accepted.
func (l *Listener) takes(c *worker.Client) error {
	p := l.cfg.Preread.Header
	switch {
	case p != nil:
		return p.Check(c.Peer(), &c.Header)
	case c.Header.Version != 0:
		return proxyproto.ErrUnexpected
	}
	return nil
}

// generations returns the generation in force and, during a reload, the next one, or nil.
func (s *Search) generations() [2]*Listener { return s.cameBy().ruling(s.client) }

// cameBy returns the generation under which the client came in.
func (s *Search) cameBy() *Listener {
	if s.home != nil {
		return s.home
	}
	return s.listener
}

// stillMay returns why the rules in force now refuse the client. It may have waited since it came in: for its turn, its
// header, its handshake or an endpoint.
func (s *Search) stillMay(by [2]*Listener) error {
	under, now, next := s.cameBy(), by[0], by[1]
	if err := now.denies(s.client); err != nil {
		return err
	}
	if err := s.mayUnder(now, under); err != nil || next == nil || next == now {
		return err
	}
	return s.mayUnder(next, under)
}

// mayUnder is stillMay under one generation l, for a client that came in under another.
func (s *Search) mayUnder(l, under *Listener) error {
	if l != under {
		if err := l.admits(s.client); err != nil {
			return err
		}
	}
	if l.cfg.TLS == nil || l.servesPlain(s.client) || s.offloaded == nil && under.cfg.TLS != nil { // the handshake is still to come
		return nil
	}
	return l.cfg.TLS.Accepts(s.offloaded.conn())
}

var (
	// errOverruled is the error of a connection to an endpoint to which the generation in force has not led.
	errOverruled = fmt.Errorf("a reload added a filter that must first decide about the client: %w", worker.ErrFilterFailed)
	// errUnasked is the error of a client about which a filter can no longer be asked.
	errUnasked = errors.New("the client was queued before a reload added this filter, and the filter can no longer decide about it")
)

// swapTime is how long a client waits for the next generation to come into force.
const swapTime = time.Millisecond

// A recourse is what a client without an endpoint has to do because another generation rules now.
type recourse uint8

const (
	goesOn recourse = iota
	begins          // begins again: a filter has not been asked about it
	looks           // the same, after a look at the first bytes, on which its route depends
)

// overruled returns the recourse of a client without an endpoint under a generation of its
// listener. An error refuses the client.
func (s *Search) overruled(l *Listener) (recourse, error) {
	if l == nil || l == s.listener || s.offloaded == nil && s.routesLater() {
		return goesOn, nil
	}
	if s.lacksHello(l) {
		if s.offloaded.conn() == nil {
			return s.mayLook(l, match.ErrUndecided)
		}
		s.client.Hello.ServerName = strings.ToLower(s.offloaded.tls.ServerName)
	}
	f, err := l.gateOf(s.client)
	switch {
	case errors.Is(err, match.ErrUndecided):
		return s.mayLook(l, err)
	case err != nil, f == nil, f.Of == s.gate:
		return goesOn, err
	case !s.mayBegin(l), s.offloaded != nil && f.Of.Preread() > 0:
		return goesOn, &FilterError{Filter: f.Of.Name(), Err: fmt.Errorf("filter %s: %w", f.Of.Name(), errUnasked)}
	}
	return begins, nil
}

// lacksHello reports whether a generation needs the ClientHello of its clients, for routes or filters, and the client was
// not looked at for one.
func (s *Search) lacksHello(l *Listener) bool {
	to, from := &l.cfg.Preread, &s.listener.cfg.Preread
	switch {
	case !to.Hello || s.client.Hello.ServerName != "" || len(s.client.Hello.ALPN) > 0 || s.client.First.Is(firstbytes.TLS) == firstbytes.Yes:
		return false
	case s.offloaded.conn() == nil && !to.AnyHello && (from.AnyHello || s.listener.recogniser() != nil):
		return true
	}
	return !from.Hello && s.listener.recogniser() == nil && (!to.AnyHello || l.Filters())
}

// gateOf returns the filter of a client's first route, or nil. The error is [ErrNoRoute] or [match.ErrUndecided].
func (l *Listener) gateOf(c *worker.Client) (*Filter, error) {
	i, err := l.indexAfter(c, match.None)
	switch {
	case err != nil:
		return nil, err
	case i != match.None:
		return l.cfg.Routes[i].Filter, nil
	case l.cfg.Default == nil && !l.cfg.Transparent:
		return nil, ErrNoRoute
	}
	return l.cfg.Filter, nil
}

// mayLook makes a generation look at the client's first bytes, if this is still possible; otherwise the client is refused
// with err.
func (s *Search) mayLook(l *Listener, err error) (recourse, error) {
	if s.offloaded != nil || s.client.First.Silent || !s.mayBegin(l) || l.recogniser() == nil && !l.cfg.Preread.Hello {
		return goesOn, err
	}
	return looks, nil
}

// mayBegin reports whether the client, in its present stage, may begin again under
// another generation: this generation must speak the same protocol with it.
func (s *Search) mayBegin(l *Listener) bool {
	if (l.cfg.Preread.Postgres != nil) != (s.listener.cfg.Preread.Postgres != nil) {
		return false
	}
	return s.offloaded == nil || (l.cfg.TLS != nil) == (s.offloaded.conn() != nil)
}

// Overruled implements [worker.Search]. A connection is overruled if a generation that is in force, or about to be, does
// not admit the client, makes it begin again, or connects to the endpoint in another way.
func (s *Search) Overruled() bool { return s.outdated() || s.mayJoin() != nil }

// outdated reports whether connections to endpoints are no longer made as the client's snapshot says, above all with or
// without TLS. The newest snapshot decides, even before the generation of the listener that leads to it is in force.
func (s *Search) outdated() bool {
	if s.snapshot == nil {
		return false
	}
	newest := s.snapshot.upstream.newest.Load()
	return newest != nil && !newest.connectsAs(s.snapshot)
}

// connectAnew moves a client with an outdated snapshot to the newest snapshot of its upstream.
// Afterwards the client may be on a goroutine.
func (s *Search) connectAnew(now int64) {
	if e := s.endpoint; e != nil {
		s.client.Record.Fail(e.name, s.start, now, record.ErrAbandoned)
		s.settle(health.Unknown, now)
	}
	s.exitBreaker(health.Unknown, now)
	s.leaveQueues()
	s.snapshot = s.snapshot.upstream.newest.Load()
	s.root, s.stage = s.snapshot, routing
}

// mayJoin returns why the client may not be joined with the endpoint that it has reached.
func (s *Search) mayJoin() error {
	by := s.generations()
	if err := s.stillMay(by); err != nil {
		return err
	}
	for _, l := range by {
		switch to, err := s.overruled(l); {
		case err != nil:
			return err
		case to != goesOn:
			return errOverruled
		}
	}
	return nil
}

// follows reports whether the generation in force routes a client that was accepted under another one and has no route yet.
// If the two generations expect different protocols, the client's own generation routes it.
func (s *Search) follows(l *Listener) bool {
	if l == nil || l == s.listener || s.root != nil || s.stage == direct || !s.mayBegin(l) {
		return false
	}
	if l.cfg.Preread.Postgres != nil && l.endsTLS(s.client) != s.listener.endsTLS(s.client) {
		return false
	}
	if s.offloaded == nil {
		return true
	}
	f, _ := l.gateOf(s.client)
	return f == nil || f.Of.Preread() == 0 // only a loop can look at first bytes
}

// renew begins the search again for a client that is overruled or has no route yet: at once under the generation in force,
// or, if the next generation overrules the client, under that one once it is in force.
func (s *Search) renew(by [2]*Listener, now int64) (worker.Step, bool) {
	for i, l := range by {
		to, err := s.overruled(l)
		if err == nil && to == goesOn && i == 0 && by[1] != s.listener && s.follows(l) {
			to = begins
		}
		switch {
		case err != nil:
			return worker.Step{}, s.giveUp(err)
		case to == goesOn:
		case i > 0: // without a place in a queue: other clients would wait behind it
			s.beginAnew(s.listener, begins, now)
			return worker.Step{Action: worker.Park, Timeout: swapTime, Unqueued: true}, true
		default:
			s.beginAnew(l, to, now)
			return worker.Step{}, false
		}
	}
	return worker.Step{}, false
}

// beginAnew is reroute for a client that may have an endpoint, or a place in a queue. The client gets its place back if it
// goes to the same queue.
func (s *Search) beginAnew(l *Listener, to recourse, now int64) {
	if e := s.endpoint; e != nil {
		s.client.Record.Fail(e.name, s.start, now, record.ErrAbandoned)
		s.settle(health.Unknown, now)
	}
	s.leaveQueues()
	visits := s.visits
	s.reroute(l, now)
	if s.visits = visits; to != looks {
		return
	}
	s.client.First = firstbytes.Facts{}
	s.asked, s.looksBy, s.need, s.stage = match.None, now+int64(l.cfg.Preread.Wait()), 1, lookingOn
	s.client.LookedEnded = false
}

// learn looks at a client's first bytes for routes, as [firstbytes.Recogniser.Look] does. ended says that no more
// bytes come.
func (s *Search) learn(first []byte, ended bool) (need int, err error) {
	if r := s.listener.recogniser(); r != nil {
		return r.Look(first, &s.client.First), nil
	}
	need, err = clienthello.Length(first)
	if err == nil && need <= len(first) {
		need = 0
		s.client.Hello, err = clienthello.Parse(first)
	}
	if s.listener.cfg.Preread.AnyHello && (err != nil || ended) {
		return 0, nil
	}
	return need, err
}

// elsewhere returns the listener's generation in force if it sends a client without an endpoint to another upstream or
// fallback, or connects in another way, than the generation under which the client came; otherwise nil. It is also nil if
// the two generations differ in whether the client's TLS ends here. If this generation begins TLS to endpoints, the client
// leaves its loop.
func (s *Search) elsewhere() *Listener {
	l := s.listener.inForce(s.client)
	if l == s.listener || (l.cfg.TLS != nil) != (s.offloaded.conn() != nil) {
		return nil
	}
	if (l.cfg.Preread.Postgres != nil) != (s.listener.cfg.Preread.Postgres != nil) {
		return nil
	}
	if l.cfg.Preread.Hello && !s.listener.cfg.Preread.Hello { // the client's hello was not looked for
		return nil
	}
	to, err := l.wayOf(s.client)
	if err != nil || s.offloaded != nil && to.filter != nil && to.filter.Of.Preread() > 0 { // only a loop can look at first bytes
		return nil
	}
	if root := to.snapshot; root == nil || root.sameWay(s.root) && root.connectsAlike(s.root) {
		return nil
	}
	return l
}

// sameWay reports whether two snapshots lead a client to the same upstreams, and give it the
// same answer if these have no endpoint.
func (snap *UpstreamSnapshot) sameWay(o *UpstreamSnapshot) bool {
	for ; snap != o; snap, o = snap.Fallback, o.Fallback {
		if snap == nil || o == nil || snap.upstream != o.upstream || !bytes.Equal(snap.Respond, o.Respond) || (snap.Respond == nil) != (o.Respond == nil) {
			return false
		}
	}
	return true
}

// connectsAlike reports whether two snapshots that lead the same way connect to endpoints in the same way. If not, a
// connection may fail with one and succeed with the other.
func (snap *UpstreamSnapshot) connectsAlike(o *UpstreamSnapshot) bool {
	for ; snap != o; snap, o = snap.Fallback, o.Fallback {
		if !snap.connectsAs(o) {
			return false
		}
	}
	return true
}

// connectsAs is connectsAlike without the fallbacks.
func (snap *UpstreamSnapshot) connectsAs(o *UpstreamSnapshot) bool {
	return snap == o || snap.TLS == o.TLS && snap.StartTLS == o.StartTLS && snap.Source == o.Source && snap.Congestion == o.Congestion && snap.SendProxy == o.SendProxy
}

// reroute begins the search again under another generation of the listener. The client must have no endpoint and no place
// in a queue.
func (s *Search) reroute(l *Listener, now int64) {
	if s.snapshot != nil {
		s.conclude(now)
	}
	s.leaveFilter()
	if s.home == nil {
		s.home = s.listener
	}
	counted := s.held && l.snapshotFor(s.client).sameWay(s.root)
	s.listener, s.stage = l, routing
	s.course, s.failed = s.fresh(), s.failed[:0]
	s.held = counted
	if of := s.offloaded; of != nil {
		of.way, _ = l.wayOf(s.client) // the caller has checked that there is a way
		if of.filter != nil {
			s.way, s.gate = of.way, of.filter.Of
			s.filterBy(of.filter, of.route, now)
		}
	}
}

// refuse ends the search because no endpoint serves the client, unless a reload sends it elsewhere. full means that an
// endpoint would serve the client if it had room: then another way to connect does not help.
func (s *Search) refuse(err error, full bool, now int64) {
	if l := s.elsewhere(); l != nil && (!full && !isFull(err) || !l.snapshotFor(s.client).sameWay(s.root)) {
		s.reroute(l, now)
		return
	}
	switch {
	case full || isFull(err):
		s.noteDenied(now)
	case s.onlyTurnedDown():
		err = s.causes()
	default:
		s.noteUnserved(now)
	}
	up := s.snapshot.upstream
	s.conclude(now)
	reason := refusalOf(err)
	switch {
	case reason != refusedFailed || len(s.failures) == 0:
	case s.onlyTurnedDown():
		reason = refusedDeclined
	case !slices.ContainsFunc(s.failures, func(f failure) bool { return localFault(f.err) < 0 }):
		reason = refusedLocal
	}
	up.Refusals.Add(int(reason))
	s.giveUp(&UpstreamError{up.name, err})
}
