package router

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/penstock/penstock/proxy/clienthello"
	"github.com/penstock/penstock/proxy/internal/firstbytes"
	"github.com/penstock/penstock/proxy/internal/health"
	"github.com/penstock/penstock/proxy/internal/match"
	"github.com/penstock/penstock/proxy/internal/proxyproto"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// inForce returns the generation of rules that applies to a client now: the newest generation of
// the listener that now has the address at which the client came in. If no listener has it, the
// client is finished by its own listener's last generation.
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

// ruling returns the generations of rules that apply to a client now: the one in force and, at the
// moment when a reload brings another one into force, that one as well, else nil.
func (l *Listener) ruling(c *worker.Client) (by [2]*Listener) {
	if l.cfg.Rules != nil {
		by[0], by[1] = l.cfg.Rules(c)
	}
	if by[0] == nil {
		by[0] = l.inForce(c)
	}
	return by
}

// admits returns the reason that a client that came under another generation may not come in
// under this one: its header is not taken, or is missing, or its source is not allowed.
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

// takes returns why a client's header, or its lack, is not accepted; nil: it is.
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

// generations returns the generation in force, and the next one if a reload is bringing it into force, or nil.
func (s *Search) generations() [2]*Listener { return s.cameBy().ruling(s.client) }

// cameBy returns the generation under which the client came in.
func (s *Search) cameBy() *Listener {
	if s.home != nil {
		return s.home
	}
	return s.listener
}

// stillMay returns why the client may not be served by the rules of the generations that are in force now. It may
// have waited since it came in, whether for its turn, its header, its handshake or an endpoint.
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

// mayUnder is stillMay by the rules of one generation, for a client that came in under another one.
func (s *Search) mayUnder(l, under *Listener) error {
	if l != under {
		if err := l.admits(s.client); err != nil {
			return err
		}
	}
	if l.cfg.TLS == nil || l.servesPlain(s.client) || s.offloaded == nil && under.cfg.TLS != nil { // its handshake is to come
		return nil
	}
	return l.cfg.TLS.Accepts(s.offloaded.conn())
}

var (
	// errOverruled is the error of a connection to an endpoint that the generation in force has not led to.
	errOverruled = fmt.Errorf("a reload added a filter, which has to be asked about the client first: %w", worker.ErrFilterFailed)
	// errUnasked is the cause of a client that a filter cannot be asked about any more.
	errUnasked = errors.New("the client was queued before the reload added this filter, which can no longer be asked about it")
)

// swapTime is how long a client waits for the next generation to come into force.
const swapTime = time.Millisecond

// A recourse is what a client without an endpoint has to do because another generation rules now.
type recourse uint8

const (
	goesOn recourse = iota
	begins          // anew: a filter is asked about it that was not
	looks           // likewise, after its first bytes were looked at, on which its route depends
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

// lacksHello reports whether a generation refuses clients, or has filters for them, by a ClientHello, and the client was not
// looked at for one.
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

// gateOf returns the filter of a client's first route; nil: it has none. The error is [ErrNoRoute], or [match.ErrUndecided].
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

// mayLook lets a generation look at the client's first bytes, if it may; otherwise it refuses the
// client for an error.
func (s *Search) mayLook(l *Listener, err error) (recourse, error) {
	if s.offloaded != nil || s.client.First.Silent || !s.mayBegin(l) || l.recogniser() == nil && !l.cfg.Preread.Hello {
		return goesOn, err
	}
	return looks, nil
}

// mayBegin reports whether the client, as far as it has come, may begin again under
// another generation, because that speaks the same protocol with it.
func (s *Search) mayBegin(l *Listener) bool {
	if (l.cfg.Preread.Postgres != nil) != (s.listener.cfg.Preread.Postgres != nil) {
		return false
	}
	return s.offloaded == nil || (l.cfg.TLS != nil) == (s.offloaded.conn() != nil)
}

// Overruled implements [worker.Search]. It is so if the generations that are in force, or about to
// be, do not let the client in, make it begin again, or connect to the endpoint in another way.
func (s *Search) Overruled() bool { return s.outdated() || s.mayJoin() != nil }

// outdated reports whether endpoints are to be connected to in another way than the client's
// snapshot says: in TLS, above all. The newest snapshot decides, even before the listener's
// generation that leads to it is in force.
func (s *Search) outdated() bool {
	if s.snapshot == nil {
		return false
	}
	newest := s.snapshot.upstream.newest.Load()
	return newest != nil && !newest.connectsAs(s.snapshot)
}

// connectAnew moves a client with an outdated snapshot on to the newest snapshot of its upstream.
// The client may be on a goroutine then.
func (s *Search) connectAnew(now int64) {
	if e := s.endpoint; e != nil {
		s.client.Record.Fail(e.name, s.start, now, worker.ErrAbandoned)
		s.settle(health.Unknown, now)
	}
	s.exitBreaker(health.Unknown, now)
	s.leaveQueues()
	s.snapshot = s.snapshot.upstream.newest.Load()
	s.root, s.stage = s.snapshot, routing
}

// mayJoin returns why the client may not be joined with an endpoint, though one is reached.
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

// renew lets an overruled client begin again: at once under the generation in force, or under
// the next one once that is in force.
func (s *Search) renew(by [2]*Listener, now int64) (worker.Step, bool) {
	for i, l := range by {
		to, err := s.overruled(l)
		switch {
		case err != nil:
			return worker.Step{}, s.giveUp(err)
		case to == goesOn:
		case i > 0: // without a place in a queue, where others would wait behind it
			s.beginAnew(s.listener, begins, now)
			return worker.Step{Action: worker.Park, Timeout: swapTime, Unqueued: true}, true
		default:
			s.beginAnew(l, to, now)
			return worker.Step{}, false
		}
	}
	return worker.Step{}, false
}

// beginAnew is reroute for a client that may have an endpoint, or a place in a queue: it has that place again if it goes there.
func (s *Search) beginAnew(l *Listener, to recourse, now int64) {
	if e := s.endpoint; e != nil {
		s.client.Record.Fail(e.name, s.start, now, worker.ErrAbandoned)
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

// learn looks at a client's first bytes for routes, as [firstbytes.Recogniser.Look]. ended says that no more come.
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

// elsewhere returns the listener's generation in force if it leads a client without an endpoint
// elsewhere than the generation under which the client came, else nil. Elsewhere is another
// upstream, another fallback, or another way to connect. The client may go where TLS begins, for
// which it leaves its loop, but not where TLS ends for it, or ends no more.
func (s *Search) elsewhere() *Listener {
	l := s.listener.inForce(s.client)
	if l == s.listener || (l.cfg.TLS != nil) != (s.offloaded.conn() != nil) {
		return nil
	}
	if (l.cfg.Preread.Postgres != nil) != (s.listener.cfg.Preread.Postgres != nil) {
		return nil
	}
	if l.cfg.Preread.Hello && !s.listener.cfg.Preread.Hello { // the client's has not been looked at
		return nil
	}
	to, err := l.wayOf(s.client)
	if err != nil || s.offloaded != nil && to.filter != nil && to.filter.Of.Preread() > 0 { // first bytes are looked at on the loop alone
		return nil
	}
	if root := to.snapshot; root == nil || root.sameWay(s.root) && root.connectsAlike(s.root) {
		return nil
	}
	return l
}

// sameWay reports whether a client goes to the same upstreams by either of two snapshots, and
// gets the same answer where these have no endpoint.
func (snap *UpstreamSnapshot) sameWay(o *UpstreamSnapshot) bool {
	for ; snap != o; snap, o = snap.Fallback, o.Fallback {
		if snap == nil || o == nil || snap.upstream != o.upstream || !bytes.Equal(snap.Respond, o.Respond) || (snap.Respond == nil) != (o.Respond == nil) {
			return false
		}
	}
	return true
}

// connectsAlike reports whether two snapshots that lead the same way make the same connections to
// endpoints: otherwise only one's may fail.
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

// reroute begins the search again by another generation of the listener. The client must have
// no endpoint and no place in a queue.
func (s *Search) reroute(l *Listener, now int64) {
	if s.snapshot != nil {
		s.conclude(now)
	}
	s.leaveFilter()
	if s.home == nil {
		s.home = s.listener
	}
	s.listener, s.stage = l, routing
	s.course, s.failed = s.fresh(), s.failed[:0]
	if of := s.offloaded; of != nil {
		of.way, _ = l.wayOf(s.client) // the caller has seen to it that there is one
		if of.filter != nil {
			s.way, s.gate = of.way, of.filter.Of
			s.filterBy(of.filter, of.route, now)
		}
	}
}

// refuse ends the search because no endpoint serves the client, unless a reload sends it elsewhere.
// full means that an endpoint would serve it if it had room: then connections that are made
// differently are no better.
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
	if reason == refusedFailed && s.localAlone() {
		reason = refusedLocal
	}
	up.refused.counts[reason].Add(1)
	s.giveUp(&UpstreamError{up.name, err})
}
