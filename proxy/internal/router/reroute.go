package router

import "bytes"

// elsewhere returns the listener's generation in force if that leads the client, which has no
// endpoint, elsewhere than the one under which it came: to another upstream, one with another
// fallback, or one whose connections are made differently; otherwise nil. A client that is on a loop
// stays there, so it does not go where TLS ends or begins; one on a goroutine goes wherever its TLS has
// ended, or not, as it has there.
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
	if root := to.snapshot; root == nil || root.sameWay(s.root) && root.connectsAlike(s.root) || s.offloaded == nil && root.TLS != nil {
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
// endpoints: otherwise those of the one may fail that the other's do not.
func (snap *UpstreamSnapshot) connectsAlike(o *UpstreamSnapshot) bool {
	for ; snap != o; snap, o = snap.Fallback, o.Fallback {
		if snap.TLS != o.TLS || snap.StartTLS != o.StartTLS || snap.Source != o.Source || snap.Congestion != o.Congestion || snap.SendProxy != o.SendProxy {
			return false
		}
	}
	return true
}

// reroute has the search begin again by another generation of the listener. The client must have
// no endpoint and no place in a queue.
func (s *Search) reroute(l *Listener, now int64) {
	if s.snapshot != nil {
		s.conclude(now)
	}
	s.leaveFilter()
	if s.home == nil {
		s.home = s.listener
	}
	s.listener = l
	s.way, s.root, s.gate, s.cause, s.stage = way{}, nil, nil, nil, routing
	if of := s.offloaded; of != nil {
		of.way, _ = l.wayOf(s.client) // the caller has seen to it that there is one
		if of.filter != nil {
			s.way, s.gate = of.way, of.filter.Of
			s.filterBy(of.filter, of.route, now)
		}
	}
	s.budgetCounted, s.onlyLastResort, s.unreported, s.held, s.full, s.mayRetry, s.back = false, false, false, false, false, false, false
	s.failing, s.round, s.retries, s.pauseCount = 0, 0, 0, 0
	s.tried, s.failures, s.forgotten, s.failed, s.visits = s.tried[:0], s.failures[:0], 0, s.failed[:0], s.visits[:0]
}

// refuse ends the search, unless a reload has the client go elsewhere: no endpoint serves it.
// full means that there is one that would, if it had room: then connections that are made differently
// are no better.
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
