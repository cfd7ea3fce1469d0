package router

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/penstock/penstock/proxy/clienthello"
	"github.com/penstock/penstock/proxy/internal/firstbytes"
	"github.com/penstock/penstock/proxy/internal/health"
	"github.com/penstock/penstock/proxy/internal/match"
	"github.com/penstock/penstock/proxy/internal/worker"
)

var (
	// errOverruled is the error of a connection to an endpoint that the generation in force has not led to.
	errOverruled = fmt.Errorf("a reload has a filter asked about the client first: %w", worker.ErrFilterFailed)
	// errUnasked is the cause of a client that a filter cannot be asked about any more.
	errUnasked = errors.New("the client was queued before the reload added this filter, which can no longer be asked about it")
)

// swapTime is how long a client waits for a generation to come into force that is about to.
const swapTime = time.Millisecond

// A recourse is what a client without an endpoint has to do by another generation of its listener than its own.
type recourse uint8

const (
	goesOn recourse = iota
	begins          // anew: a filter is asked about it that was not
	looks           // likewise, after its first bytes were looked at, on which its route depends
)

// overruled returns the recourse of a client without an endpoint by a generation of its listener. With an error that refuses
// the client.
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
	return !from.Hello && s.listener.recogniser() == nil && (!to.AnyHello || l.filters())
}

// filters reports whether a route of the listener has a filter.
func (l *Listener) filters() bool {
	for i := range l.cfg.Routes {
		if l.cfg.Routes[i].Filter != nil {
			return true
		}
	}
	return l.cfg.Filter != nil
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

// mayLook has a generation look at the client's first bytes, if it may; otherwise it refuses the client for an error.
func (s *Search) mayLook(l *Listener, err error) (recourse, error) {
	if s.offloaded != nil || s.client.First.Silent || !s.mayBegin(l) || l.recogniser() == nil && !l.cfg.Preread.Hello {
		return goesOn, err
	}
	return looks, nil
}

// mayBegin reports whether the client, as far as it has come, may begin anew by another generation: that speaks the same
// protocol with it.
func (s *Search) mayBegin(l *Listener) bool {
	if (l.cfg.Preread.Postgres != nil) != (s.listener.cfg.Preread.Postgres != nil) {
		return false
	}
	return s.offloaded == nil || (l.cfg.TLS != nil) == (s.offloaded.conn() != nil)
}

// Overruled reports whether a connection that was made is not to be used: by the generations that are in force, or about
// to be, the client may not come in, or has to begin anew. [Search.Next] refuses it, or has it do so.
func (s *Search) Overruled() bool { return s.mayJoin() != nil }

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

// renew has a client that is overruled begin anew: at once by the generation in force, and when it is in force by the one that
// is about to be.
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
	s.leaveHeld()
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
