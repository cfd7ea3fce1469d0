package router

import (
	"net/netip"
	"time"

	"github.com/penstock/penstock/proxy/internal/clientkey"
	"github.com/penstock/penstock/proxy/internal/health"
	"github.com/penstock/penstock/proxy/internal/lb"
	"github.com/penstock/penstock/proxy/internal/tlsterm"
	"github.com/penstock/penstock/proxy/sockopt"
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
	// Congestion is the congestion control of connections to endpoints; nil: that of the system.
	Congestion *sockopt.Congestion
	// BySource says that which endpoint is picked depends on where the client comes from:
	// otherwise the kernel is not asked for that.
	BySource bool
	// HashKey is the property of a client that decides instead, of clients that have it, if BySource is set.
	HashKey clientkey.Key
	// TLS is that of connections to endpoints; nil: the client's bytes as they are.
	TLS *tlsterm.Client
	// StartTLS asks endpoints for that TLS by the protocol of PostgreSQL.
	StartTLS bool
}

// An UpstreamSnapshot is an upstream as one generation of the configuration has it. It is not
// changed, but for the endpoints: all snapshots of an upstream have those of the newest
// generation, so that clients of an older one find endpoints that there are.
type UpstreamSnapshot struct {
	SnapshotConfig
	upstream *Upstream
}

// NewSnapshot returns a snapshot of an upstream. It needs a set before it is used.
func NewSnapshot(up *Upstream, cfg *SnapshotConfig) *UpstreamSnapshot {
	return &UpstreamSnapshot{SnapshotConfig: *cfg, upstream: up}
}

// holds reports whether clients are held that no endpoint can serve.
func (snap *UpstreamSnapshot) holds() bool {
	return snap.Fallback == nil && snap.Respond == nil && snap.times().Hold > 0 && snap.QueueSize > 0
}

// Enforce has clients that wait, for an endpoint or for room at one, do so for the times of
// this snapshot, from when they began to: those too that came under another one. It is called
// once the listeners are in force that lead here, since a client that has waited for long
// enough goes to their upstreams.
func (snap *UpstreamSnapshot) Enforce() {
	before := snap.upstream.current.Swap(snap)
	if before != nil && (snap.Hold < before.Hold || snap.QueueTimeout < before.QueueTimeout) {
		snap.upstream.queue.wakeAll()
		snap.upstream.held.wakeAll()
	}
}

// times returns the snapshot that says how long clients wait.
func (snap *UpstreamSnapshot) times() *UpstreamSnapshot {
	if now := snap.upstream.current.Load(); now != nil {
		return now
	}
	return snap
}

// Set returns the endpoints, nil if there was never a set.
func (snap *UpstreamSnapshot) Set() *lb.Set { return snap.upstream.set.Load() }

// SetEndpoints has clients sent to the endpoints of a set, which has been attached, and returns
// the one before.
func (snap *UpstreamSnapshot) SetEndpoints(s *lb.Set) (before *lb.Set) {
	before = snap.upstream.set.Swap(s)
	snap.upstream.breaker.Store(snap.Breaker)
	snap.upstream.unserved.Store(0)
	snap.upstream.look()
	snap.upstream.Room()
	return before
}

// SetFallback sets the snapshot that clients fall back to, before the snapshot is used.
func (snap *UpstreamSnapshot) SetFallback(to *UpstreamSnapshot) { snap.Fallback = to }
