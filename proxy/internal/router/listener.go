package router

import (
	"net/netip"
	"sync"
	"time"

	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/proxy/internal/lb"
	"github.com/penstock/penstock/proxy/internal/limit"
	"github.com/penstock/penstock/proxy/internal/match"
	"github.com/penstock/penstock/proxy/internal/source"
	"github.com/penstock/penstock/proxy/internal/tlsterm"
	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/proxy/sockopt"
	"github.com/penstock/penstock/relay"
)

// A Route says where clients go that match an entry of a listener's table.
type Route struct {
	Snapshot  *UpstreamSnapshot // nil if there is a Split
	Split     *lb.WeightedSplit // shares clients among Snapshots
	Snapshots []*UpstreamSnapshot
	Mirror    *Mirror  // nil: there is none
	Rewrite   *Rewrite // nil: nothing is rewritten
	Filter    *Filter  // nil: there is none
}

// ListenerConfig sets up a [Listener]. A field without a default may be zero.
type ListenerConfig struct {
	Name  string
	State *ListenerState // required
	// Access says which sources may come in.
	Access limit.Access
	// Denials are set by operators while clients come and go; nil: none.
	Denials *limit.Denials
	// Sources limits each source by itself, and is the same in all generations of a State. Process is the rate of all
	// listeners together. nil: no limit.
	Sources *limit.Sources
	Process *limit.Rate
	// SourcePrefix is the number of bits of an IPv4 and of an IPv6 address that form a source
	// for the monitors of endpoints, see [health.SourceOf].
	SourcePrefix [2]int
	// StateOf returns the state of the listener that now has the address at which a client came in, perhaps another one
	// than before, or nil if none has it. Several loops call it at the same time, and it must not wait. If StateOf is nil,
	// a listener keeps its addresses.
	StateOf func(*worker.Client) *ListenerState
	// Rules returns the generation in force at the address at which a client came in, and the generation that a reload is
	// about to bring into force there (nil: none), while endpoints of either may serve clients. It is called like StateOf,
	// and may be nil.
	Rules func(*worker.Client) (now, next *Listener)
	// Wake makes the loops ask [worker.Admitter.CanAccept] again; required.
	Wake func()

	// Table has an entry for each of Routes; Default is for clients that match none; nil: they are refused.
	Table   *match.Table
	Routes  []Route
	Default *UpstreamSnapshot
	// Mirror, Rewrite and Filter are for clients that no route matches; nil: there is none.
	Mirror  *Mirror
	Rewrite *Rewrite
	Filter  *Filter
	// ByKey also counts the sessions by a property of their clients; nil: it does not.
	ByKey *KeyCounts
	// ByHello says that an upstream or the metrics need the name in a client's hello.
	ByHello bool
	// BySource and ByPort say that a route depends on the client's source, or on the port. Otherwise the kernel is not
	// asked for them.
	BySource, ByPort bool
	// Transparent sends clients that would otherwise be refused for lack of a route to
	// their original destination; Own says which addresses are this process's own.
	Transparent bool
	Own         func(netip.AddrPort) bool

	Preread worker.Preread
	Refusal func(c *worker.Client, cause error) []byte // see [worker.Service]; it may be nil
	Limits  relay.Limits                               // of sessions; Of is set by the listener
	Lane    worker.LaneUse                             // whether sessions leave user space
	Options sockopt.Options
	// Connect bounds the attempt to reach one endpoint; 0: the kernel's timeout.
	Connect time.Duration
	// TLS ends the TLS of clients; nil: it is passed through.
	TLS *tlsterm.Server
	// Offloaded serves a client with TLS that ends or begins in this process, on a goroutine of its own until the client is
	// joined. It is required if TLS is set, here or in an UpstreamSnapshot.
	Offloaded func(h *worker.Offloaded, of *Offloaded)

	// Now is the clock of the upstreams' breakers and outlier detection.
	Now func() int64
	// Resolver looks up the hosts of endpoints.
	Resolver worker.Resolver
	// Circle returns an error for an address of an endpoint that leads back to the upstream, or for an original destination
	// that leads back to itself, with the upstream "". name says that a name was looked up. For a path it is called
	// with the connected socket alone. c is the client; nil: a mirror's. Circle must not wait, and may be nil.
	Circle func(c *worker.Client, upstream string, at loop.Address, name bool, fd int, connected bool) error
}

// A Listener is a listener in one generation of the configuration.
type Listener struct {
	cfg      ListenerConfig
	limits   relay.Limits
	bindings sync.Map // bindingKey to *binding
	state    *ListenerState
}

// NewListener returns a listener. Its Service is for all sockets of the listener.
func NewListener(cfg *ListenerConfig) *Listener {
	l := &Listener{cfg: *cfg, limits: cfg.Limits, state: cfg.State}
	l.limits.Of = originalDst{state: l.state}
	return l
}

// Name returns its name.
func (l *Listener) Name() string { return l.cfg.Name }

// Config returns the listener's configuration, which must not be changed.
func (l *Listener) Config() *ListenerConfig { return &l.cfg }

// Service returns the service of the listener's clients, for package worker.
func (l *Listener) Service() *worker.Service {
	preread := l.cfg.Preread
	if l.recogniser() != nil { // a route depends on first bytes
		preread.First = (*recognition)(l)
	}
	return &worker.Service{
		Name:      l.cfg.Name,
		Admitter:  (*admission)(l),
		Preread:   preread,
		Lane:      l.cfg.Lane,
		Limits:    &l.limits,
		Options:   l.cfg.Options,
		Refusal:   l.cfg.Refusal,
		NewSearch: func() worker.Search { return &Search{listener: l} },
	}
}

// Enforce makes this the generation in force. Its rules of access, for PROXY headers and for certificates now apply to
// earlier clients without an endpoint. They go to its upstreams if no endpoint serves them.
// Its limits of sources apply to them, too.
func (l *Listener) Enforce() {
	if s := l.cfg.Sources; s != nil {
		l.state.sources.Store(s)
	}
	l.state.current.Store(l)
}

// Forget releases the state of sessions to removed endpoints.
func (l *Listener) Forget(gone map[*Endpoint]bool) {
	l.bindings.Range(func(key, _ any) bool {
		if gone[key.(bindingKey).endpoint] {
			l.bindings.Delete(key)
		}
		return true
	})
}

func (l *Listener) now() int64 { return l.cfg.Now() }

// snapshotFor returns the upstream to which a client goes, or nil.
func (l *Listener) snapshotFor(c *worker.Client) *UpstreamSnapshot {
	to, _ := l.wayOf(c)
	return to.snapshot
}

// A way says where a client goes by a route, and what is done with its bytes.
type way struct {
	route    int               // the route's index; match.None: no route matches
	snapshot *UpstreamSnapshot // nil: nowhere
	mirror   *Mirror           // nil: none
	rewrite  *Rewrite          // nil: none
	filter   *Filter           // nil: none
}

// wayOf returns where a client goes. It fails with [match.ErrUndecided].
func (l *Listener) wayOf(c *worker.Client) (way, error) { return l.wayAfter(c, match.None) }

// wayAfter returns where a client goes by its first route after another route. match.None is before
// all routes.
func (l *Listener) wayAfter(c *worker.Client, after int) (way, error) {
	i, err := l.indexAfter(c, after)
	switch {
	case err != nil:
		return way{}, err
	case i == match.None:
		return way{match.None, l.cfg.Default, l.cfg.Mirror, l.cfg.Rewrite, l.cfg.Filter}, nil
	}
	r := &l.cfg.Routes[i]
	to := way{i, r.Snapshot, r.Mirror, r.Rewrite, r.Filter}
	if r.Split != nil {
		if c.SplitPlace == 0 { // otherwise it keeps its part
			c.SplitPlace = r.Split.Draw()
		}
		to.snapshot = r.Snapshots[r.Split.Part(c.SplitPlace)]
	}
	return to, nil
}

// destination returns the address to which a client has connected: from its PROXY header, or its original destination,
// or the address of this listener.
func (l *Listener) destination(c *worker.Client) netip.AddrPort {
	transparent := l.cfg.Transparent
	switch l := c.Listening(); {
	case c.Header.Known():
	case transparent:
		return c.Original()
	case l != nil && l.Local.IsValid():
		return l.Local
	}
	return c.Destination()
}

// original returns where a client wanted to go before it was brought here.
func (l *Listener) original(c *worker.Client) (loop.Address, error) {
	at := c.Original()
	if !at.IsValid() || l.cfg.Own != nil && l.cfg.Own(at) {
		return loop.Address{}, ErrLoop
	}
	return loop.Address{AddrPort: at}, nil
}

// An Adoption says where sessions of an earlier process belong: to a listener, and to an endpoint or an upstream if these
// are known. Of the listener's settings only its timeouts apply to them. They count for the limits, even beyond a limit:
// otherwise an endpoint would get more sessions than its limit.
type Adoption struct {
	listener *Listener
	limits   *relay.Limits
	binding  *binding // nil: the endpoint is unknown
}

// Adoption returns where sessions of the listener belong: to the endpoint of the snapshot or, if the endpoint is nil, to
// the upstream of this name.
func (l *Listener) Adoption(upstream string, to *UpstreamSnapshot, e *Endpoint) *Adoption {
	t := &l.cfg.Limits
	a := &Adoption{l, &relay.Limits{IdleTimeout: t.IdleTimeout, HalfCloseTimeout: t.HalfCloseTimeout, MaxLifetime: t.MaxLifetime, LifetimeJitter: t.LifetimeJitter}, nil}
	if e != nil {
		return a.At(to, e)
	}
	a.limits.Of = originalDst{l.state, upstream}
	return a
}

// At returns where a session of a belongs once its endpoint, one of the snapshot, is known.
func (a *Adoption) At(to *UpstreamSnapshot, e *Endpoint) *Adoption {
	b := &binding{limits: *a.limits, listener: a.listener, snapshot: to, endpoint: e, breaker: e.breaker.Load(), adopted: true}
	b.limits.Of = b
	return &Adoption{a.listener, &b.limits, b}
}

// Limits returns the limits of all sessions that belong there.
func (a *Adoption) Limits() *relay.Limits { return a.limits }

// Begin takes the places of one session, and returns its limits and the token of its listener's [worker.Admitter].
func (a *Adoption) Begin(from source.Source, now int64) (*relay.Limits, uint64) {
	l := a.listener
	l.state.Connections.Add()
	token := admissionToken(0)
	if l.cfg.Sources != nil {
		token = admissionToken(l.cfg.Sources.Adopt(from, now))
	}
	return a.Bind(), token
}

// Bind takes the place of one session at the endpoint, if it is known, and returns the session's limits.
func (a *Adoption) Bind() *relay.Limits {
	if b := a.binding; b != nil {
		b.breaker.Adopt()
		b.snapshot.Breaker.Adopt()
		b.endpoint.upstream.sessions.Add(1)
		b.endpoint.Add()
	}
	return a.limits
}

var _ worker.Adoption = (*Adoption)(nil)
