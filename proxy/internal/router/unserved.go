package router

import "sync/atomic"

// Unserved reports whether a client was refused or held because no endpoint could be connected
// to, and none was connected to since: by a client, or by a check that shows as much.
func (u *Upstream) Unserved() bool { return u.unserved.Load() != 0 }

// ServedSince reports whether clients are served though no endpoint is usable: the last of
// them with a known result was served, since a time of the clock, and not refused, held
// because no endpoint could serve it, or lost by its endpoint. A client is served when its endpoint has sent a byte or,
// without one, has ended the session in good order after the client did.
func (u *Upstream) ServedSince(at int64) bool {
	served := u.served.Load()
	return served != 0 && served >= at && served > u.denied.Load()
}

// noteDenied notes that the client is refused or held, of those upstreams that it was to be served by.
func (s *Search) noteDenied(now int64) {
	for snap := s.root; snap != nil; snap = snap.Fallback {
		snap.upstream.denied.Store(now)
	}
}

// noteUnserved notes that no endpoint can serve the client now, of those upstreams that it was
// to be served by.
func (s *Search) noteUnserved(now int64) {
	s.noteDenied(now)
	for snap := s.root; snap != nil; snap = snap.Fallback {
		if !snap.upstream.Unserved() && s.inVain(snap) {
			snap.upstream.unserved.CompareAndSwap(0, now)
		}
	}
}

// inVain reports whether the client could not connect to an endpoint of a snapshot, or did not
// because another one could not.
func (s *Search) inVain(snap *UpstreamSnapshot) bool {
	for i := range s.failures {
		if s.failures[i].endpoint.upstream == snap.upstream {
			return true
		}
	}
	set := snap.Set()
	if set == nil {
		return false
	}
	members, panicking := set.Members(), set.Panicking()
	for i := range members {
		if e := members[i].Endpoint; e.Failing() && e.CanAcquireAnyway(panicking) {
			return true
		}
	}
	return false
}

// serves notes that an endpoint was connected to, or was to be, at a time.
func (u *Upstream) serves(at int64) {
	if since := u.unserved.Load(); since != 0 && since <= at {
		u.unserved.CompareAndSwap(since, 0)
	}
}

// noteServed notes that the endpoint has served the session's client: of a last resort, and where
// clients are sent to an endpoint that is not usable, as in panic. Of a last resort it is counted
// once.
func (b *binding) noteServed(now int64) {
	switch {
	case b.resort:
		b.snapshot.upstream.resortsUnserved.Store(0)
		b.endpoint.resortServed()
		if b.counted.Swap(true) {
			return
		}
		atomic.AddInt64(&b.snapshot.upstream.counts.LastResortAnswered, 1)
		if m := b.endpoint.monitor.Load(); m != nil {
			m.Served(b.began)
		}
	case !b.endpoint.unusable():
		return
	}
	b.snapshot.upstream.served.Store(now)
}

// unusable reports whether a verdict keeps clients from the endpoint.
func (e *Endpoint) unusable() bool {
	st := e.State()
	return st.Down || st.Ejected || st.Broken
}
