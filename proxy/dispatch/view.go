package dispatch

import (
	"net/netip"
	"time"

	"github.com/penstock/penstock/proxy/balance"
	"github.com/penstock/penstock/proxy/health"
	"github.com/penstock/penstock/proxy/terminate"
)

// ViewConfig sets up a [View]. What has no default said may be zero.
type ViewConfig struct {
	// Breaker and Budget are the upstream's; nil: there is none.
	Breaker *health.Breaker
	Budget  *health.Budget

	// Attempts is how many more endpoints are tried when one could not be reached. Before
	// those that the client has tried are tried again there is a pause of Backoff, which
	// doubles each time up to MaxBackoff.
	Attempts            int
	Backoff, MaxBackoff time.Duration

	// QueueSize is how many clients may wait for room, for QueueTimeout each.
	QueueSize    int64
	QueueTimeout time.Duration

	// Hold is how long a client waits, as one of these, when nobody can serve it and there is
	// no fallback; 0: it does not.
	Hold time.Duration

	// Fallback gets the clients for whom there is no endpoint, nil for none; if Respond is
	// not nil they get these bytes instead.
	Fallback *View
	Respond  []byte

	// SendProxy is the version of the PROXY header that endpoints get, 0 for none.
	SendProxy int
	// Source is the local address to connect from, if valid.
	Source netip.Addr
	// BySource says that which endpoint is picked depends on where the client comes from:
	// otherwise the kernel is not asked for that.
	BySource bool
	// TLS is what is spoken with endpoints; nil: what the client sends.
	TLS *terminate.Client
}

// A View is an upstream as one generation of the configuration has it. It is not
// changed, but for the endpoints: all views of an upstream have those of the newest
// generation, so that clients of an older one find endpoints that there are.
type View struct {
	ViewConfig
	up *Upstream
}

// NewView returns a view of an upstream. It needs a set before it is used.
func NewView(up *Upstream, cfg *ViewConfig) *View {
	return &View{ViewConfig: *cfg, up: up}
}

// holds reports whether clients are held that nobody can serve.
func (v *View) holds() bool {
	return v.Fallback == nil && v.Respond == nil && v.times().Hold > 0 && v.QueueSize > 0
}

// Enforce has clients that wait, for an endpoint or for room at one, do so for as long as this view
// says, from when they began to: those too that came under another one. It is called once the
// listeners are in force that lead here, since who has waited for long enough goes where they lead.
func (v *View) Enforce() {
	before := v.up.current.Swap(v)
	if before != nil && (v.Hold < before.Hold || v.QueueTimeout < before.QueueTimeout) {
		v.up.queue.wakeAll()
		v.up.held.wakeAll()
	}
}

// times returns the view that says how long clients wait.
func (v *View) times() *View {
	if now := v.up.current.Load(); now != nil {
		return now
	}
	return v
}

// Upstream returns what it is a view of.
func (v *View) Upstream() *Upstream { return v.up }

// Set returns the endpoints, nil if there was never a set.
func (v *View) Set() *balance.Set { return v.up.set.Load() }

// Use has clients sent to the endpoints of a set, which has been attached, and returns
// the one before.
func (v *View) Use(s *balance.Set) (before *balance.Set) {
	before = v.up.set.Swap(s)
	v.up.breaker.Store(v.Breaker)
	v.up.unserved.Store(0)
	v.up.look()
	v.up.Room()
	return before
}

// SetFallback sets the view that clients fall back to, before the view is used.
func (v *View) SetFallback(to *View) { v.Fallback = to }
