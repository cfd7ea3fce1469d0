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
	if !l.cfg.Access.Limits() {
		return nil
	}
	return l.cfg.Access.Check(c.Source())
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

// stillMay returns why the client may not be served by the rules that are in force now. It may
// have waited since it came in, whether for its turn, its header, its handshake or an endpoint.
func (s *Search) stillMay() error {
	under := s.listener
	if s.home != nil {
		under = s.home
	}
	now := under.inForce(s.client)
	if now != under {
		if err := now.admits(s.client); err != nil {
			return err
		}
	}
	if now.cfg.TLS == nil || s.offloaded == nil && under.cfg.TLS != nil { // its handshake is to come
		return nil
	}
	return now.cfg.TLS.Accepts(s.offloaded.conn())
}
