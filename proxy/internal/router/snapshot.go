package router

import (
	"net/netip"
	"time"

	"github.com/penstock/penstock/proxy/internal/health"
	"github.com/penstock/penstock/proxy/internal/lb"
	"github.com/penstock/penstock/proxy/internal/tlsterm"
)

// SnapshotConfig sets up an [UpstreamSnapshot]. A field without a default may be zero.
type SnapshotConfig struct {
	// Breaker and Budget are the upstream's; nil: there is none.
	Breaker *health.Breaker
	Budget  *health.RetryBudget

	// Attempts is how many more endpoints are tried when one could not be reached. Before
	// those that the client has tried are tried again there is a pause of Backoff, which
	// doubles each time up to MaxBackoff.
	Attempts            int
	Backoff, MaxBackoff time.Duration

	// QueueSize is how many clients may wait for room, for QueueTimeout each.
	QueueSize    int64
	QueueTimeout time.Duration

	// Hold is how long a client waits, as one of these, when no endpoint can serve it and
	// there is no fallback; 0: it does not.
	Hold time.Duration

	// Fallback gets the clients without an endpoint, nil for none; if Respond is not nil they
	// get these bytes instead.
	Fallback *UpstreamSnapshot
	Respond  []byte

	// SendProxy is the version of the PROXY header that endpoints get, 0 for none.
	SendProxy int
	// Source is the local address to connect from, if valid.
	Source netip.Addr
	// BySource says that which endpoint is picked depends on where the client comes from:
	// otherwise the kernel is not asked for that.
	BySource bool
	// TLS is that of connections to endpoints; nil: the client's bytes as they are.
	TLS *tlsterm.Client
}

// An UpstreamSnapshot is an upstream as one generation of the configuration has it. It is not
// changed, but for the endpoints: all snapshots of an upstream have those of the newest
// generation, so that clients of an older one find endpoints that there are.
type UpstreamSnapshot struct {
	SnapshotConfig
	up *Upstream
}

// NewSnapshot returns a snapshot of an upstream. It needs a set before it is used.
func NewSnapshot(up *Upstream, cfg *SnapshotConfig) *UpstreamSnapshot {
	return &UpstreamSnapshot{SnapshotConfig: *cfg, up: up}
}

// holds reports whether clients are held that no endpoint can serve.
func (v *UpstreamSnapshot) holds() bool {
	return v.Fallback == nil && v.Respond == nil && v.times().Hold > 0 && v.QueueSize > 0
}

// Enforce has clients that wait, for an endpoint or for room at one, do so for the times of
// this snapshot, from when they began to: those too that came under another one. It is called
// once the listeners are in force that lead here, since a client that has waited for long
// enough goes to their upstreams.
func (v *UpstreamSnapshot) Enforce() {
	before := v.up.current.Swap(v)
	if before != nil && (v.Hold < before.Hold || v.QueueTimeout < before.QueueTimeout) {
		v.up.queue.wakeAll()
		v.up.held.wakeAll()
	}
}

// times returns the snapshot that says how long clients wait.
func (v *UpstreamSnapshot) times() *UpstreamSnapshot {
	if now := v.up.current.Load(); now != nil {
		return now
	}
	return v
}

// Set returns the endpoints, nil if there was never a set.
func (v *UpstreamSnapshot) Set() *lb.Set { return v.up.set.Load() }

// SetEndpoints has clients sent to the endpoints of a set, which has been attached, and returns
// the one before.
func (v *UpstreamSnapshot) SetEndpoints(s *lb.Set) (before *lb.Set) {
	before = v.up.set.Swap(s)
	v.up.breaker.Store(v.Breaker)
	v.up.unserved.Store(0)
	v.up.look()
	v.up.Room()
	return before
}

// SetFallback sets the snapshot that clients fall back to, before the snapshot is used.
func (v *UpstreamSnapshot) SetFallback(to *UpstreamSnapshot) { v.Fallback = to }
