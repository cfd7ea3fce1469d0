package dispatch

import (
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/proxy/core"
	"github.com/penstock/penstock/proxy/health"
	"github.com/penstock/penstock/relay"
)

// A bond binds sessions to an endpoint, and holds what they are limited to: all that
// came by one listener under one generation have the same, so that it costs a session
// nothing. A session that is a trial of a breaker has one of its own.
type bond struct {
	limits   relay.Limits
	listener *Listener
	view     *View
	endpoint *Endpoint

	breaker          *health.Breaker // the endpoint's, that let it through; nil: none
	permit, upPermit health.Permit
	forced, upForced bool        // in panic, by breakers that are open
	resort           bool        // it is of one session, to an endpoint that is a last resort
	counted          atomic.Bool // of a last resort: its client was served
	began            int64       // clock, of a trial or a last resort
	told             atomic.Bool // of a trial: what it has come to

	from  health.Source // of the client, if it is one of the sample; Anybody: it is not
	named atomic.Pointer[[namedBonds]atomic.Pointer[bond]]
}

var _ core.Bond = (*bond)(nil)

// bondOf returns the bond of a session that was let through by a breaker of the
// endpoint's, or by nil.
func (l *Listener) bondOf(v *View, e *Endpoint, by *health.Breaker) *bond {
	key := bondKey{v, e}
	if b, ok := l.bonds.Load(key); ok && b.(*bond).breaker == by {
		return b.(*bond)
	}
	b := l.newBond(v, e, by)
	l.bonds.Store(key, b)
	if e.gone.Load() { // who lets go of it may have been here before
		l.bonds.Delete(key)
	}
	return b
}

type bondKey struct {
	view     *View
	endpoint *Endpoint
}

func (l *Listener) newBond(v *View, e *Endpoint, by *health.Breaker) *bond {
	b := &bond{limits: l.limits, listener: l, view: v, endpoint: e, breaker: by}
	b.limits.Of, b.limits.FirstByteCame = b, b.firstByte
	return b
}

// Names implements [core.Bond].
func (b *bond) Names() (upstream, endpoint string) { return b.view.up.name, b.endpoint.name }

// EndpointOf returns the endpoint of sessions with that bond, nil for a bond of others.
func EndpointOf(b core.Bond) *Endpoint {
	if b, ok := b.(*bond); ok {
		return b.endpoint
	}
	return nil
}

// Ended implements [core.Bond].
func (b *bond) Ended(r relay.Result, _ error) {
	now := b.listener.now()
	o, from := outcomeOf(&r), b.from
	b.endpoint.settled(&r, from, now)
	if o == health.OK && r.BToA.Bytes() == 0 {
		from = health.Anybody // which is no witness for the endpoint
		b.noteServed(now)
	}
	if !b.told.Swap(b.trial()) {
		b.report(from, o, now)
	}
	if b.view.Breaker != nil {
		b.view.Breaker.End(true)
	}
	if b.breaker != nil {
		b.breaker.End(true)
	}
	b.endpoint.Release()
	b.view.freed()
}

// trial reports whether this is the bond of a trial, or of one who has passed an open
// breaker: it is of one session.
func (b *bond) trial() bool {
	return b.permit.Trial() || b.upPermit.Trial() || b.forced || b.upForced
}

func (b *bond) report(from health.Source, o health.Outcome, now int64) {
	b.endpoint.ended(o, now)
	b.endpoint.report(b.permit, from, o, now)
	if b.view.Breaker != nil {
		b.view.Breaker.ReportFrom(b.upPermit, from, o, now)
	}
	if o == health.OK {
		b.better("a client was served all the same")
	}
}

// better reports what speaks for the endpoint to the breakers that the client has passed though
// they were open.
func (b *bond) better(what string) {
	if b.forced {
		b.breaker.Better(what)
	}
	if b.upForced {
		b.view.Breaker.Better(what)
	}
}

// answered is called when a trial's endpoint has sent something: the trial has succeeded,
// however long the session lasts.
func (b *bond) answered() {
	if !b.told.Swap(true) {
		b.report(b.from, health.OK, b.listener.now())
	}
}

// lasts is called now and then while a trial goes on. In many protocols an endpoint that is well
// sends nothing; so if nothing more is asked of it than that, a trial has succeeded that is not
// over after a time in which it would count as a failure to end it.
func (b *bond) lasts(now int64) {
	if b.limits.FirstByte > 0 || now-b.began < int64(soon) || b.told.Swap(true) {
		return
	}
	if b.permit.Trial() {
		b.breaker.Report(b.permit, health.OK, now)
	}
	if b.upPermit.Trial() {
		b.view.Breaker.Report(b.upPermit, health.OK, now)
	}
	b.better("a client's connection lasts")
}

// freed tells those who wait because of the upstream's own limit; those who wait for an
// endpoint's are told by its set.
func (v *View) freed() {
	if v.Breaker != nil {
		v.up.Room()
	}
}

// outcomeOf is what a session says of its endpoint, when it ends. That something was heard
// of the endpoint at some time is no news if nothing was in the end: an endpoint that
// stands still has many such sessions, and a row of failures does not end with them.
func outcomeOf(r *relay.Result) health.Outcome {
	if r.First == relay.SideB && r.BToA.Bytes() == 0 {
		return hungUp(r)
	}
	switch r.Reason {
	case relay.ReasonIdle, relay.ReasonHalfClose, relay.ReasonError, relay.ReasonCanceled:
		return health.Unknown
	}
	switch {
	case r.BToA.Bytes() > 0 || r.BToA.Reason == relay.ReasonEOF:
		return health.OK
	case r.Reason == relay.ReasonFirstByte:
		return health.Silent
	case r.Reason != relay.ReasonReset || r.Culprit != relay.SideB:
		return health.Unknown
	case r.AToB.Bytes() > 0 || r.AToB.Reason == relay.ReasonEOF:
		return health.Rejected
	}
	return health.Reset
}

// soon is within which time an endpoint that ends a session without having said anything has
// failed. Servers that are well do so later, when nobody says anything to them.
const soon = 5 * time.Second

// hungUp is what it says of an endpoint that it has ended a session before the client did,
// and has sent nothing.
func hungUp(r *relay.Result) health.Outcome {
	if r.Duration > soon {
		return health.Unknown
	}
	return health.HungUp
}
