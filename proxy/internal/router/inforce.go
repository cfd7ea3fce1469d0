package router

import (
	"github.com/penstock/penstock/proxy/internal/proxyproto"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// inForce returns the generation whose rules apply to a client now: the newest one of the
// listener that has the address at which the client came in, whichever that is by now. If none
// has, the client is finished by its own listener's last generation.
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

// ruling returns the generations whose rules apply to a client now: the one in force, and in the moment in which a
// reload brings another one into force that one as well, or nil.
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

// takes returns the reason that a client's header, or the lack of one, would not do.
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

// generations returns the generation in force, and the one that is about to be, or nil.
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
