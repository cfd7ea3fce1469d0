package router

import (
	"errors"
	"sync/atomic"

	"github.com/penstock/penstock/proxy/internal/health"
	"github.com/penstock/penstock/proxy/internal/postgres"
	"github.com/penstock/penstock/proxy/internal/tlsterm"
)

// A Failure is the last one of an endpoint's connections: one that could not be made, for
// whatever reason, or that ended without a byte of the endpoint.
type Failure struct {
	Cause string // a line of bounded length, in which every character can be seen
	At    int64  // clock
	// Over means that the endpoint has succeeded since: a connection was made, or a first byte
	// came.
	Over bool
	// Connecting says that a connection could not be made, for the endpoint's part.
	Connecting bool
}

// A lastFailure is the last failure of an endpoint. It is not changed.
type lastFailure struct {
	outcome health.Outcome // Unknown: this machine could not connect
	cause   string
	at      int64
	// plain says that the connection itself could not be made, for the endpoint's part: then
	// one that is made by a check shows that this is over.
	plain bool
}

// LastFailure returns the last failure; false: there was none.
func (e *Endpoint) LastFailure() (f Failure, any bool) {
	last := e.lastFailure.Load()
	if last == nil {
		return Failure{}, false
	}
	text := last.outcome.String()
	if last.outcome == health.Unknown {
		text = "this machine cannot connect"
	}
	if last.cause != "" {
		text += ": " + last.cause
	}
	return Failure{Cause: text, At: last.at, Over: !e.failed.Load(), Connecting: last.outcome == health.ConnectFailed}, true
}

// unreached notes that a connection could not be made.
func (e *Endpoint) unreached(o health.Outcome, err error, now int64) {
	last := &lastFailure{outcome: o, at: now}
	if o == health.ConnectFailed || o == health.Unknown {
		last.cause = causeOf(err)
		last.plain = o == health.ConnectFailed && !errors.As(err, new(*tlsterm.Error)) && !errors.Is(err, postgres.ErrEndpoint)
	}
	e.note(last)
	if o.Failed() {
		e.upstream.unreached[unreachedBy(err)].Add(1)
	}
}

// ended notes the outcome of a connection that was made.
func (e *Endpoint) ended(o health.Outcome, now int64) {
	switch {
	case o.Failed():
		e.note(&lastFailure{outcome: o, at: now})
		e.unserved.add(now)
		e.upstream.unserving[o].Add(1)
		if e.unusable() {
			e.upstream.denied.Store(now)
		}
		e.checkSoon(now)
	case o == health.OK:
		e.spoke()
	}
}

func (e *Endpoint) note(last *lastFailure) {
	e.lastFailure.Store(last)
	e.failed.Store(true)
}

// spoke notes that the endpoint has sent something, which says nothing of whether another
// connection can be made.
func (e *Endpoint) spoke() {
	e.resortServed()
	e.unserved.end()
	if e.failed.Load() && !e.lastFailure.Load().connecting() {
		e.failed.Store(false)
	}
}

// connected notes that a connection was made for a client.
func (e *Endpoint) connected(now int64) {
	if e.failed.Load() && e.lastFailure.Load().connecting() {
		e.failed.Store(false)
	}
	e.upstream.serves(now)
}

// passed notes that a check that began at a time has connected to the endpoint. If clients
// have failed later than at the connect, that proves nothing.
func (e *Endpoint) passed(began int64) {
	last := e.lastFailure.Load()
	if last != nil && (!last.plain || last.at > began) {
		return
	}
	e.failed.Store(false)
	e.upstream.serves(began)
}

// handshakesFail reports whether the last that was tried for a client was a TLS handshake, and
// failed.
func (e *Endpoint) handshakesFail() bool {
	last := e.lastFailure.Load()
	return e.failed.Load() && last != nil && last.outcome == health.ConnectFailed && !last.plain
}

// A streak counts the sessions in a row that ended without a byte of the endpoint, and not by the
// client's doing as far as that can be known.
type streak struct {
	n, since, last atomic.Int64
}

func (s *streak) add(now int64) {
	if s.n.Add(1) == 1 {
		s.since.Store(now)
	}
	s.last.Store(now)
}

func (s *streak) end() {
	if s.n.Load() != 0 {
		s.n.Store(0)
	}
}

// UnservedStreak returns how many sessions in a row the endpoint has failed after it was
// connected to, with the clock at the first and the last of them: it has sent no byte on any,
// and has served no client since.
func (e *Endpoint) UnservedStreak() (n, since, last int64) {
	return e.unserved.n.Load(), e.unserved.since.Load(), e.unserved.last.Load()
}

// FailedSessions returns how many sessions ended without a byte of an endpoint that had been connected
// to, by how they did.
func (u *Upstream) FailedSessions() map[string]int64 {
	return byName(u.unserving[:], func(i int) string { return health.Outcome(i).String() })
}

// FailedSessionsTotal returns how many these are.
func (u *Upstream) FailedSessionsTotal() int64 { return total(u.unserving[:]) }

// connecting reports whether it is one of making a connection.
func (f *lastFailure) connecting() bool {
	return f.outcome == health.ConnectFailed || f.outcome == health.Unknown
}
