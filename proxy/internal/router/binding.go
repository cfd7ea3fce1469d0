package router

import (
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/proxy/internal/health"
	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/relay"
)

// A binding binds sessions to an endpoint, and holds their limits: all that came by one
// listener under one generation have the same, one for each [KeyCount], so that it costs a session nothing. A session
// that is a trial of a breaker has one of its own.
type binding struct {
	limits   relay.Limits
	listener *Listener
	snapshot *UpstreamSnapshot
	endpoint *Endpoint
	key      *KeyCount // of all its sessions; nil: they are not counted by a property of their clients

	breaker                *health.Breaker // the endpoint's, that let it through; nil: none
	permit, upstreamPermit health.Permit
	forced, upstreamForced bool        // in panic, by breakers that are open
	adopted                bool        // its sessions have begun in a process before this one
	resort                 bool        // it is of one session, to an endpoint that is a last resort
	counted                atomic.Bool // of a last resort: its client was served
	began                  int64       // clock, of a trial or a last resort
	reported               atomic.Bool // of a trial: its outcome

	from  health.Source // of the client, if it is one of the sample; health.UnsampledSource: it is not
	named atomic.Pointer[[namedBindings]atomic.Pointer[binding]]
}

var _ worker.Binding = (*binding)(nil)

// bindingOf returns the binding of a session that was let through by a breaker of the
// endpoint's, or by nil.
func (l *Listener) bindingOf(snap *UpstreamSnapshot, e *Endpoint, breaker *health.Breaker, count *KeyCount) *binding {
	key := bindingKey{snap, e, count}
	if b, ok := l.bindings.Load(key); ok && b.(*binding).breaker == breaker {
		return b.(*binding)
	}
	b := l.newBinding(snap, e, breaker, count)
	l.bindings.Store(key, b)
	if e.gone.Load() { // its removal may have been here before
		l.bindings.Delete(key)
	}
	return b
}

type bindingKey struct {
	snapshot *UpstreamSnapshot
	endpoint *Endpoint
	count    *KeyCount
}

func (l *Listener) newBinding(snap *UpstreamSnapshot, e *Endpoint, breaker *health.Breaker, count *KeyCount) *binding {
	b := &binding{limits: l.limits, listener: l, snapshot: snap, endpoint: e, breaker: breaker, key: count}
	b.limits.Of, b.limits.FirstByteCame = b, b.firstByte
	return b
}

// Names implements [worker.Binding].
func (b *binding) Names() (upstream, endpoint string) {
	return b.snapshot.upstream.name, b.endpoint.name
}

// EndpointOf returns the endpoint of sessions with that binding, nil for a binding of others.
func EndpointOf(b worker.Binding) *Endpoint {
	switch b := b.(type) {
	case *binding:
		return b.endpoint
	case mirrorBinding:
		return b.endpoint
	}
	return nil
}

// Ended implements [worker.Binding].
func (b *binding) Ended(r relay.Result, _ error) {
	now := b.listener.now()
	o, from := outcomeOf(&r), b.from
	if b.adopted && r.BToA.Bytes() == 0 { // its endpoint has answered the process before
		o = health.Unknown
	} else {
		b.endpoint.settled(&r, from, now)
	}
	if o == health.OK && r.BToA.Bytes() == 0 {
		from = health.UnsampledSource // which is no witness for the endpoint
		b.noteServed(now)
	}
	if !b.reported.Swap(b.trial()) {
		b.report(from, o, now)
	}
	if b.snapshot.Breaker != nil {
		b.snapshot.Breaker.End(true)
	}
	if b.breaker != nil {
		b.breaker.End(true)
	}
	b.endpoint.upstream.sessions.Add(-1)
	b.endpoint.Release()
	b.snapshot.notifyRoom()
}

// trial reports whether this is the binding of a trial, or of a client that has passed an open
// breaker: it is of one session.
func (b *binding) trial() bool {
	return b.permit.Trial() || b.upstreamPermit.Trial() || b.forced || b.upstreamForced
}

func (b *binding) report(from health.Source, o health.Outcome, now int64) {
	b.endpoint.ended(o, now)
	b.endpoint.report(b.permit, from, o, now)
	if b.snapshot.Breaker != nil {
		b.snapshot.Breaker.ReportFrom(b.upstreamPermit, from, o, now)
	}
	if o == health.OK {
		b.better("a client was served all the same")
	}
}

// better reports a success of the endpoint to the breakers that the client has passed though
// they were open.
func (b *binding) better(what string) {
	if b.forced {
		b.breaker.Improved(what)
	}
	if b.upstreamForced {
		b.snapshot.Breaker.Improved(what)
	}
}

// answered is called when a trial's endpoint has sent something: the trial has succeeded,
// however long the session lasts.
func (b *binding) answered() {
	if !b.reported.Swap(true) {
		b.report(b.from, health.OK, b.listener.now())
	}
}

// lasts is called now and then while a trial goes on. In many protocols an endpoint that is well
// sends nothing; so if nothing more is asked of it than that, a trial has succeeded that is not
// over after a time in which it would count as a failure to end it.
func (b *binding) lasts(now int64) {
	if b.limits.FirstByte > 0 || now-b.began < int64(silentCloseWindow) || b.reported.Swap(true) {
		return
	}
	if b.permit.Trial() {
		b.breaker.Report(b.permit, health.OK, now)
	}
	if b.upstreamPermit.Trial() {
		b.snapshot.Breaker.Report(b.upstreamPermit, health.OK, now)
	}
	b.better("a client's connection lasts")
}

// notifyRoom wakes clients that wait because of the upstream's own limit; those that wait for
// an endpoint's are woken by its set.
func (snap *UpstreamSnapshot) notifyRoom() {
	if snap.Breaker != nil {
		snap.upstream.Room()
	}
}

// outcomeOf is the outcome of a session for its endpoint, when it ends. A first byte at some
// time does not count if there was silence in the end: an endpoint that stands still has many
// such sessions, and a row of failures does not end with them.
func outcomeOf(r *relay.Result) health.Outcome {
	if r.First == relay.SideB && r.BToA.Bytes() == 0 {
		return closedSilently(r)
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

// silentCloseWindow is the time within which an endpoint that ends a session without having
// sent a byte has failed. Healthy servers do so later, if the client sends nothing.
const silentCloseWindow = 5 * time.Second

// closedSilently is the outcome for an endpoint that has ended a session before the client
// did, and has sent nothing.
func closedSilently(r *relay.Result) health.Outcome {
	if r.Duration > silentCloseWindow {
		return health.Unknown
	}
	return health.HungUp
}
