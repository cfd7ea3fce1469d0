package router

import (
	"github.com/penstock/penstock/proxy/internal/firstbytes"
	"github.com/penstock/penstock/proxy/internal/match"
	"github.com/penstock/penstock/proxy/internal/worker"
)

// A recognition is the [worker.FirstBytes] of one generation of a listener.
type recognition Listener

// recogniser returns the recogniser of the listener's routes. It is nil if no route depends on
// first bytes, or if each client has to send a hello: hellos are read separately.
func (l *Listener) recogniser() *firstbytes.Recogniser {
	if p := &l.cfg.Preread; l.cfg.Table == nil || p.Hello || p.Postgres != nil {
		return nil
	}
	return l.cfg.Table.Recogniser()
}

func (r *recognition) Max() int { return r.cfg.Table.Recogniser().Max() }

func (r *recognition) Look(c *worker.Client, b []byte) (need int, err error) {
	need = r.cfg.Table.Recogniser().Look(b, &c.First)
	route, err := r.decide(c)
	if err == nil && need > 0 && c.First.Is(firstbytes.TLS) == firstbytes.Open && r.readsHello(route) {
		return need, nil
	}
	if err == nil {
		r.state.recognised(&c.First)
		return 0, nil
	}
	if need > 0 {
		return need, nil
	}
	return 0, err
}

// readsHello reports whether a client's hello is needed for more than its route: for the route's filter, or by
// [ListenerConfig.ByHello].
func (r *recognition) readsHello(route int) bool {
	if !r.cfg.Table.Hello() {
		return false
	}
	filter := r.cfg.Filter
	if route != match.None {
		filter = r.cfg.Routes[route].Filter
	}
	return r.cfg.ByHello || filter != nil
}

func (r *recognition) Silent(c *worker.Client) bool {
	c.First.Silent = true
	_, err := r.decide(c)
	if c.First.Silent = err == nil; c.First.Silent {
		r.state.recognised(&c.First)
	}
	return c.First.Silent
}

// recognised counts a client by its protocol, if its first bytes were looked at to choose its
// route.
func (state *ListenerState) recognised(f *firstbytes.Facts) {
	if p, ok := f.Recognised(); ok {
		state.Spoken.Add(int(p))
	} else if f.Seen() > 0 {
		state.Spoken.Add(int(firstbytes.Protocols))
	}
}

func (r *recognition) decide(c *worker.Client) (int, error) {
	of := (*Listener)(r).clientOf(c)
	return r.cfg.Table.Decide(&of, match.None)
}

func (l *Listener) clientOf(c *worker.Client) match.Client {
	of := match.Client{ServerName: c.Hello.ServerName, ALPN: c.Hello.ALPN, TLVs: c.Header.TLVs, First: &c.First}
	of.User, of.Database = c.Postgres.Login()
	if l.cfg.BySource {
		of.Source = c.Source()
	}
	if l.cfg.ByPort {
		of.Port = l.destination(c).Port()
	}
	return of
}

// indexAfter returns the index of a client's first route after another one, or [match.None] if
// there is none; match.None is before all routes. It fails if the decision depends on data that
// the client has not sent.
func (l *Listener) indexAfter(c *worker.Client, after int) (int, error) {
	if l.cfg.Table == nil || l.cfg.Table.Len() == 0 {
		return match.None, nil
	}
	of := l.clientOf(c)
	switch {
	case l.recogniser() != nil:
		return l.cfg.Table.Decide(&of, after)
	case l.cfg.Table.Login(), after != match.None:
		return l.cfg.Table.FindAfter(&of, after)
	}
	return l.cfg.Table.Find(&of), nil
}
