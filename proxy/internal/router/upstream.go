package router

import (
	"crypto/tls"
	"iter"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/proxy/internal/clientkey"
	"github.com/penstock/penstock/proxy/internal/health"
	"github.com/penstock/penstock/proxy/internal/lb"
	"github.com/penstock/penstock/proxy/internal/tally"
	"github.com/penstock/penstock/proxy/internal/tlsterm"
	"github.com/penstock/penstock/proxy/sockopt"
)

// An Upstream is endpoints that do the same work, for as long as a file names them.
// It is safe for concurrent use.
type Upstream struct {
	name string
	account
	down                   func(*Endpoint)                  // see NewUpstream
	queue                  queue                            // clients that wait for room
	held                   queue                            // clients that no endpoint can serve
	heldFull               atomic.Int64                     // clock since when held clients that look find endpoints that serve, without room; 0: the last one found none
	set                    atomic.Pointer[lb.Set]           // of all its snapshots
	newest                 atomic.Pointer[UpstreamSnapshot] // says how to connect to the endpoints; nil: there was none
	current                atomic.Pointer[UpstreamSnapshot] // in force; nil: none
	panic                  atomic.Pointer[health.Panic]     // nil: it is not reported
	trial                  atomic.Int64                     // clock before which no failing endpoint may be tried
	trialsPaid, trialsFrom atomic.Int64                     // see mayTry and window
	// unserved is since when clients are refused or held because no endpoint accepts connections; 0: none is.
	unserved atomic.Int64
	// denied is the last time (clock; 0: never) at which a client was refused, was held because no endpoint could serve
	// it, or was lost by an endpoint that is not usable. served is the last time at which an endpoint that is not
	// usable has served a client.
	denied, served atomic.Int64

	mu        sync.Mutex
	endpoints map[string]*Endpoint // by identity; under mu

	counts          tally.UpstreamCounts // by atomic.AddInt64
	resortsUnserved atomic.Int64         // last resorts since one was last served; see vain
	vainEndpoints   atomic.Int64         // endpoints that have served none of their last resorts
	sessions        atomic.Int64         // joined now

	// Refusals counts the clients that got neither an endpoint nor the fallback. LocalFaults counts connections that could
	// not be made because this process or this machine lacked something, Unreached connections that could not be made
	// through the endpoints' fault. FailedSessions counts sessions that ended without a byte of their connected endpoint,
	// by how they ended. None of them keeps the upstream in memory.
	Refusals, LocalFaults, Unreached, FailedSessions *tally.Reasons
}

// NewUpstream returns an upstream without endpoints. down is called when sessions are not to go on at an endpoint, on the
// goroutine that finds it: when it becomes unhealthy, when its checks bar it again, and when a client joins it that was on
// its way then. It must be quick, and may be nil.
func NewUpstream(name string, down func(*Endpoint)) *Upstream {
	return &Upstream{
		name: name, down: down, endpoints: make(map[string]*Endpoint), Refusals: tally.NewReasons(refusalNames[:]...),
		LocalFaults: tally.NewReasons(localFaultNames()...), Unreached: tally.NewReasons(unreachedNames[:]...),
		FailedSessions: tally.NewReasons(health.OutcomeNames[:]...),
	}
}

func (u *Upstream) fell(e *Endpoint) {
	if u.down != nil {
		u.down(e)
	}
}

// Name returns the upstream's name.
func (u *Upstream) Name() string { return u.name }

// Endpoint returns the endpoint with the identity cfg.ID. If there is none it makes one, and made is true. The same
// identity with another address is another endpoint.
func (u *Upstream) Endpoint(name string, addr sockopt.Address, cfg lb.EndpointConfig) (e *Endpoint, made bool, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if e := u.endpoints[cfg.ID]; e != nil && e.Address == addr {
		return e, false, nil
	}
	e, err = newEndpoint(u, name, addr, cfg)
	if err != nil {
		return nil, false, err
	}
	u.endpoints[cfg.ID] = e
	return e, true, nil
}

// Forget makes the upstream forget an endpoint. Its sessions go on, but after [Listener.Forget] listeners keep nothing for
// them. late is called when a further session begins, with a client that was on its way. It is called on the session's
// loop, just before the session can be cut; it must be quick, and may be nil.
func (u *Upstream) Forget(e *Endpoint, late func()) {
	if late != nil {
		e.late.Store(&late)
	}
	e.gone.Store(true)
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.endpoints[e.ID()] == e {
		delete(u.endpoints, e.ID())
	}
}

// Forgotten reports whether the endpoint's upstream has forgotten it.
func (e *Endpoint) Forgotten() bool { return e.gone.Load() }

// Recall makes the upstream know a forgotten endpoint again.
func (u *Upstream) Recall(e *Endpoint) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.endpoints[e.ID()] = e
	e.gone.Store(false)
	e.late.Store(nil)
}

// HoldUnder sets the places, shared with other upstreams, for the clients that are held because no endpoint can serve them. It
// is called before there are clients.
func (u *Upstream) HoldUnder(p *Places) { u.held.places = p }

// Addresses returns the addresses of the endpoints, without names that are looked up, except for localhost.
func (u *Upstream) Addresses() iter.Seq[loop.Address] {
	return func(yield func(loop.Address) bool) {
		set := u.set.Load()
		if set == nil {
			return
		}
		for _, m := range set.Members() {
			e := m.Endpoint.Of.(*Endpoint)
			list := e.fixed
			if sockopt.Localhost(e.host) {
				list = []loop.Address{{AddrPort: netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), e.port)}}
			}
			for _, at := range list {
				if !yield(at) {
					return
				}
			}
		}
	}
}

// Room wakes two clients: the one that has waited longest for room at an endpoint, and the one that has been held longest.
func (u *Upstream) Room() {
	u.queue.next()
	u.held.next()
}

// AskAgain makes all waiting clients look again.
func (u *Upstream) AskAgain() {
	u.queue.wakeAll()
	u.held.wakeAll()
}

// Sessions returns how many clients are joined to endpoints of the upstream now.
func (u *Upstream) Sessions() int64 { return u.sessions.Load() }

// Held returns how many clients wait for a usable endpoint.
func (u *Upstream) Held() int { return int(u.held.waiting.Load()) }

// Waiting returns how many clients wait for room, or for a usable endpoint.
func (u *Upstream) Waiting() int { return int(u.queue.waiting.Load() + u.held.waiting.Load()) }

// Counts returns the counts so far.
func (u *Upstream) Counts() tally.UpstreamCounts { return tally.Load(&u.counts) }

// SnapshotConfig sets up an [UpstreamSnapshot]. A field without a default may be zero.
type SnapshotConfig struct {
	// Breaker and Budget belong to the upstream; nil: there is none.
	Breaker *health.Breaker
	Budget  *health.RetryBudget

	// Attempts is how many further endpoints are tried if one could not be reached. Before an endpoint is tried again
	// there is a pause of Backoff, which doubles each time up to MaxBackoff.
	Attempts            int
	Backoff, MaxBackoff time.Duration

	// QueueSize is how many clients may wait for room, for QueueTimeout each.
	QueueSize    int64
	QueueTimeout time.Duration

	// Hold is how long a client waits in the queue if no endpoint can serve it and there
	// is no fallback; 0: it does not wait.
	Hold time.Duration

	// Fallback gets the clients without an endpoint; nil: there is none. If Respond is not nil, they get these bytes
	// instead.
	Fallback *UpstreamSnapshot
	Respond  []byte

	// SendProxy is the version of the PROXY header that endpoints get, 0 for none.
	SendProxy int
	// Source is the local address to connect from, if valid.
	Source netip.Addr
	// Congestion is the congestion control of connections to endpoints; nil: the system's.
	Congestion *sockopt.Congestion
	// BySource says that the pick depends on the client's source; otherwise the kernel is
	// not asked for the source.
	BySource bool
	// HashKey, if BySource is set, is the property that decides instead, for clients that have it.
	HashKey clientkey.Key
	// TLS is spoken with endpoints; nil: the client's bytes go unchanged.
	TLS *tlsterm.Client
	// StartTLS asks endpoints for TLS in PostgreSQL's protocol first.
	StartTLS bool
}

// An UpstreamSnapshot is an upstream in one generation of the configuration. It is not changed, except for its endpoints:
// all snapshots of an upstream have the newest generation's endpoints, so that clients of an older generation find them.
// Connections to them are made as the newest generation says, see [Search.Overruled].
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

// Enforce applies this snapshot's waiting times to all clients that wait for an endpoint or for room, even if they came
// under another snapshot. The times count from the beginning of each client's wait. Enforce is called after the listeners
// that lead here are in force, because a client that has waited long enough goes to their upstreams.
func (snap *UpstreamSnapshot) Enforce() {
	before := snap.upstream.current.Swap(snap)
	if before != nil && (snap.Hold < before.Hold || snap.QueueTimeout < before.QueueTimeout) {
		snap.upstream.AskAgain()
	}
}

// times returns the snapshot with the waiting times in force.
func (snap *UpstreamSnapshot) times() *UpstreamSnapshot {
	if now := snap.upstream.current.Load(); now != nil {
		return now
	}
	return snap
}

// Set returns the endpoints, nil if there was never a set.
func (snap *UpstreamSnapshot) Set() *lb.Set { return snap.upstream.set.Load() }

// SetEndpoints sends clients to the endpoints of an attached set, and returns the former set.
func (snap *UpstreamSnapshot) SetEndpoints(s *lb.Set) (before *lb.Set) {
	snap.upstream.newest.Store(snap) // before a client can find them
	before = snap.upstream.set.Swap(s)
	snap.upstream.unserved.Store(0)
	snap.upstream.look()
	snap.upstream.Room()
	return before
}

// breaker returns the upstream's breaker, or nil.
func (u *Upstream) breaker() *health.Breaker {
	if snap := u.newest.Load(); snap != nil {
		return snap.Breaker
	}
	return nil
}

// Certificate is [tlsterm.Client.Certificate] as the newest generation has it. It shows none without TLS to the endpoints.
func (u *Upstream) Certificate(asked *tls.CertificateRequestInfo) (*tls.Certificate, error) {
	if snap := u.newest.Load(); snap != nil && snap.TLS != nil {
		return snap.TLS.Certificate(asked)
	}
	return new(tls.Certificate), nil
}

// SetFallback sets the snapshot that clients fall back to, before the snapshot is used.
func (snap *UpstreamSnapshot) SetFallback(to *UpstreamSnapshot) { snap.Fallback = to }
