package lanes

import (
	"maps"
	"net/netip"
	"sync"
	"time"

	"github.com/penstock/penstock/lane"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/internal/record"
	"github.com/penstock/penstock/proxy/internal/router"
	"github.com/penstock/penstock/proxy/internal/source"
	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/relay"
)

// Places are the parts of the configuration in force to which sessions of an earlier process can belong, by
// name.
type Places struct {
	Listeners map[string]*Listener
	Upstreams map[string]*Upstream
	Idle      time.Duration            // the idle timeout of sessions without a known listener; 0: none
	Now       func() int64             // the clock of the loops
	Down      func(e *router.Endpoint) // called when sessions of an endpoint are adopted and the endpoint is down or ejected
}

// A Listener is a listener of [Places].
type Listener struct {
	Name    string
	Router  *router.Listener
	Service *worker.Service
	Sockets []Socket // its TCP sockets
}

// A Socket is a socket at which a listener accepts connections. Covers reports whether clients reach it at an
// address.
type Socket struct {
	Listening *worker.Listening
	Covers    func(netip.AddrPort) bool
}

// An Upstream is an upstream of [Places].
type Upstream struct {
	Name      string
	Snapshot  *router.UpstreamSnapshot
	Endpoints []*router.Endpoint
}

// An adopter gives the loops the sessions in the lane that come from an earlier process. It finds their
// listener and upstream by the hashes of the names, and their endpoint by its name or its address. It does not
// guess: if it does not find a session's listener, the session gets a listener made for this purpose; if it
// does not find the endpoint, the session has none.
type adopter struct {
	*Places
	lanes     *Lanes
	listeners map[uint32]*Listener
	upstreams map[uint32]*Upstream
	unknown   map[record.Timeouts]*Listener // for sessions without a known listener
	endpoints map[*Upstream]*endpoints
	ways      map[way]*router.Adoption
	without   map[*Listener]*worker.Listening // for listeners without a socket
	damaged   int                             // sessions with a record that could not be read
	why       error                           // why the last record could not be read
}

// A way is where sessions come in, and where they go.
type way struct {
	from *Listener
	to   *Upstream        // nil: not known
	at   *router.Endpoint // nil: not known
}

// unbound are the adopted sessions with a known upstream and an unknown endpoint. Sessions of the same way have
// the same limits, which are the key.
type unbound map[*relay.Limits]lost

type lost struct {
	upstream string
	of       *router.Adoption
}

// adopt gives the loops the sessions of an opened lane, once the first discovery is over. The caller holds Mu.
func (l *Lanes) adopt(now *state) {
	if now.lane == nil || !l.adopts {
		return
	}
	var a *adopter
	for _, one := range now.lane.Sessions() {
		if !one.Adopted() {
			continue
		}
		if a == nil {
			a = newAdopter(l)
		}
		a.adopt(now.lane, one)
	}
	if a == nil {
		return
	}
	for _, at := range a.without {
		at.Release()
	}
	if a.damaged > 0 {
		l.Log.Warn("some adopted sessions have lost their details: only their addresses are known", "sessions", a.damaged, "error", a.why)
	}
}

// Found gives adopted sessions without an endpoint to endpoints that their upstreams have got since. It is
// called when upstreams get other endpoints. The caller holds Mu.
func (l *Lanes) Found() {
	if len(l.unbound) == 0 {
		return
	}
	a, sessions := newAdopter(l), maps.Clone(l.unbound)
	type at struct {
		of *relay.Limits
		e  *router.Endpoint
	}
	var mu sync.Mutex // guards everything below: the loops call the function
	found := make(map[at]*router.Adoption)
	l.Group.Rebind(func(of *relay.Limits, address netip.AddrPort) worker.Adoption {
		mu.Lock()
		defer mu.Unlock()
		u := a.Upstreams[sessions[of].upstream]
		if u == nil {
			return nil
		}
		e := a.endpointAt(u, 0, address)
		if e == nil {
			return nil
		}
		if found[at{of, e}] == nil {
			found[at{of, e}] = sessions[of].of.At(u.Snapshot, e)
		}
		return found[at{of, e}]
	})
}

func newAdopter(l *Lanes) *adopter {
	p := l.Places()
	return &adopter{
		Places: p, lanes: l, listeners: byHash(p.Listeners), upstreams: byHash(p.Upstreams), unknown: make(map[record.Timeouts]*Listener), endpoints: make(map[*Upstream]*endpoints),
		ways: make(map[way]*router.Adoption), without: make(map[*Listener]*worker.Listening),
	}
}

// byHash returns parts by the hashes of their names. If two names have the same hash, the map has nil for it.
func byHash[T any](parts map[string]*T) map[uint32]*T {
	all := make(map[uint32]*T, len(parts))
	for name, of := range parts {
		add(all, record.HashOf(name), of)
	}
	return all
}

// add adds a part by its key. If two parts have the same key, the map has nil for it.
func add[K comparable, T any](to map[K]*T, key K, of *T) {
	if _, twice := to[key]; twice {
		of = nil
	}
	to[key] = of
}

// adopt gives one session to a loop.
func (a *adopter) adopt(in *lane.Lane, one *lane.Session) {
	x, y, known := one.Addresses()
	tag, tagged := one.Tag()
	if !known || !tagged {
		return // the session has ended
	}
	m, err := record.Decode(tag[:])
	if err != nil {
		a.damaged, a.why, m = a.damaged+1, err, new(record.Image)
	}
	m.Adopted, m.Client, m.Local, m.EndpointAddress = true, source.TCP(x[0]), x[1], y[0]
	w := way{from: a.listeners[m.Names[record.OfListener]], to: a.upstreams[m.Names[record.OfUpstream]]}
	if w.from == nil {
		w.from = a.unknownListener(m.Timeouts)
	}
	if w.to != nil {
		w.at = a.endpointAt(w.to, m.Names[record.OfEndpoint], y[0])
	}
	at := a.socketOf(w.from, x[1])
	if at == nil {
		return // this process is about to end
	}
	to := a.ways[w]
	if to == nil {
		to = a.adoption(w)
		a.ways[w] = to
	}
	a.lanes.Group.Adopt(in, one, m, at, w.from.Service, to)
}

// unknownListener returns a listener for sessions without a known listener. The sessions keep their timeouts if
// these are known.
func (a *adopter) unknownListener(t record.Timeouts) *Listener {
	if a.unknown[t] == nil {
		limits := relay.Limits{IdleTimeout: a.Idle}
		if t.Known {
			limits = t.Limits()
		}
		r := router.NewListener(&router.ListenerConfig{
			Name: admin.UnknownName, State: router.NewListenerState(admin.UnknownName, nil), Wake: func() {}, Limits: limits, Lane: worker.LaneOn, Now: a.Now,
		})
		a.unknown[t] = &Listener{Name: admin.UnknownName, Router: r, Service: r.Service()}
	}
	return a.unknown[t]
}

// socketOf returns the socket of a listener at which a session has come in. If that socket is gone, it returns
// another socket of the listener. nil means that this process is about to end.
func (a *adopter) socketOf(l *Listener, local netip.AddrPort) *worker.Listening {
	for _, s := range l.Sockets {
		if s.Covers(local) {
			return s.Listening
		}
	}
	if len(l.Sockets) > 0 {
		return l.Sockets[0].Listening
	}
	at := a.without[l]
	if at == nil {
		if at = a.lanes.Group.Unlistened(l.Service); at != nil {
			a.without[l] = at
		}
	}
	return at
}

func (a *adopter) adoption(w way) *router.Adoption {
	if w.to == nil {
		return w.from.Router.Adoption(admin.UnknownName, nil, nil)
	}
	to := w.from.Router.Adoption(w.to.Name, w.to.Snapshot, w.at)
	if w.at == nil {
		a.lanes.unbound[to.Limits()] = lost{w.to.Name, to}
	} else if st := w.at.State(); st.Down || st.Ejected {
		a.Down(w.at)
	}
	return to
}

// endpoints are an upstream's endpoints, by their addresses and by the hashes of their names. If two endpoints
// have the same key, the map has nil for it.
type endpoints struct {
	byAddress map[netip.AddrPort]*router.Endpoint // endpoints with numeric addresses
	byName    map[uint32]*router.Endpoint
}

func newEndpoints(list []*router.Endpoint) *endpoints {
	all := &endpoints{make(map[netip.AddrPort]*router.Endpoint, len(list)), make(map[uint32]*router.Endpoint, len(list))}
	for _, e := range list {
		add(all.byName, record.HashOf(e.Name()), e)
		if at, is := numeric(e); is {
			add(all.byAddress, at, e)
		}
	}
	return all
}

// numeric returns the address of an endpoint, unless it is a host name.
func numeric(e *router.Endpoint) (at netip.AddrPort, is bool) {
	at, err := netip.ParseAddrPort(e.Address.Name)
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port()), err == nil
}

// find returns the endpoint with this name, unless it has another address now. Then, or if no endpoint has the name,
// it returns the endpoint with this address. It returns nil if there is none, or if there are two.
func (all *endpoints) find(name uint32, at netip.AddrPort) *router.Endpoint {
	if e := all.byName[name]; e != nil {
		if is, number := numeric(e); !number || is == at {
			return e
		}
	}
	return all.byAddress[at]
}

// endpointAt returns the endpoint of an upstream by the hash of its name (0: it has no name) and by its
// address. It returns nil if the endpoint is not known.
func (a *adopter) endpointAt(u *Upstream, name uint32, at netip.AddrPort) *router.Endpoint {
	if a.endpoints[u] == nil {
		a.endpoints[u] = newEndpoints(u.Endpoints)
	}
	return a.endpoints[u].find(name, at)
}
