package router

import (
	"github.com/penstock/penstock/proxy/internal/health"
	"github.com/penstock/penstock/proxy/internal/lb"
)

// SetPanic sets the subject that is notified when the upstream begins and ends to use all of
// its endpoints, whatever their states; it may be nil. It is found out when a verdict on an
// endpoint changes and, if something else has changed, by the next client.
func (u *Upstream) SetPanic(p *health.Panic) { u.panic.Store(p) }

// Panic reports whether it uses all of its endpoints, whatever is thought of them, and how
// many times it has begun to.
func (u *Upstream) Panic() (now bool, begun int64) {
	if p := u.panic.Load(); p != nil {
		begun = p.Begun()
	}
	now, _, _ = u.seePanic()
	return now, begun
}

// panicking reports whether clients are sent to all endpoints of a set. Then they pass the
// breakers, of the upstream and of the endpoints, whose bounds alone hold: an endpoint that no
// client may try would not be found to be healthy.
func (u *Upstream) panicking(set *lb.Set) bool {
	on := set.Panicking()
	if p := u.panic.Load(); p != nil {
		p.Look(on, u.seePanic)
	}
	return on
}

func (u *Upstream) seePanic() (panicking bool, usable, all int) {
	set := u.set.Load()
	if set == nil {
		return false, 0, 0
	}
	st := set.Status()
	return st.Panic, st.UsablePrimaries, st.Primaries
}

// look has it found out whether the upstream is in panic, after something has changed.
func (u *Upstream) look() {
	if set := u.set.Load(); set != nil {
		u.panicking(set)
	}
}

// askBreaker asks a breaker, or in panic only its bounds. forced means that the breaker would
// have refused the client.
func askBreaker(b *health.Breaker, panicking bool) (permit health.Permit, forced bool, refused health.Refusal) {
	if !panicking {
		permit, refused = b.Begin()
		return permit, false, refused
	}
	forced = b.State() == health.Open
	permit, refused = b.Pass()
	return permit, forced && !permit.Trial(), refused
}
