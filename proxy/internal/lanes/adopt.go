package lanes

import (
	"net/netip"
	"time"

	"github.com/penstock/penstock/lane"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/internal/record"
	"github.com/penstock/penstock/proxy/internal/router"
	"github.com/penstock/penstock/proxy/internal/source"
	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/relay"
)

// Places are the parts of the configuration in force that sessions may belong to which a process before this one has had, by their names.
type Places struct {
	Listeners map[string]*Listener
	Upstreams map[string]*Upstream
	Idle      time.Duration            // timeout of sessions whose listener is not found; 0: they have none
	Now       func() int64             // the clock of the loops
	Down      func(e *router.Endpoint) // sessions are adopted whose endpoint is down, and was so before
}

// A Listener is one of [Places].
type Listener struct {
	Name    string
	Router  *router.Listener
	Service *worker.Service
	Sockets []Socket // of TCP
}

// A Socket is one at which a listener is accepted from, with the addresses at which it is reached.
type Socket struct {
	Listening *worker.Listening
	Covers    func(netip.AddrPort) bool
}

// An Upstream is one of [Places].
type Upstream struct {
	Name      string
	Snapshot  *router.UpstreamSnapshot
	Endpoints []*router.Endpoint
}

// An adopter gives the loops the sessions in the lane that a process before this one has had. Their parts of the configuration are found by the hashes of their names, and
// the endpoints by their addresses. What is not found is not guessed: such sessions have a listener of their own, or no endpoint.
type adopter struct {
	*Places
	group     *worker.Group
	listeners map[uint64]*Listener
	upstreams map[uint64]*Upstream
	unknown   *Listener // of sessions whose listener is not found
	endpoints map[*Upstream]map[netip.AddrPort]*router.Endpoint
	ways      map[way]*router.Adoption
	without   map[*Listener]*worker.Listening // of listeners without a socket
}

// A way is where sessions have come in, and where they go to.
type way struct {
	from *Listener
	to   *Upstream        // nil: it is not known
	at   *router.Endpoint // nil: likewise
}

// adopt gives the loops the sessions of a lane that was opened, once the first discovery is over. Mu is held.
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
			a = newAdopter(l.Group, l.Places())
		}
		a.adopt(now.lane, one)
	}
	if a != nil {
		for _, at := range a.without {
			at.Release()
		}
	}
}

func newAdopter(g *worker.Group, p *Places) *adopter {
	return &adopter{
		Places: p, group: g, listeners: byHash(p.Listeners), upstreams: byHash(p.Upstreams), endpoints: make(map[*Upstream]map[netip.AddrPort]*router.Endpoint),
		ways: make(map[way]*router.Adoption), without: make(map[*Listener]*worker.Listening),
	}
}

// byHash returns parts by the hashes of their names. A hash of two names is of none.
func byHash[T any](parts map[string]*T) map[uint64]*T {
	all := make(map[uint64]*T, len(parts))
	for name, of := range parts {
		add(all, record.HashOf(name), of)
	}
	return all
}

// add adds a part by its key, or has the key of two parts be of none.
func add[K comparable, T any](to map[K]*T, key K, of *T) {
	if _, twice := to[key]; twice {
		of = nil
	}
	to[key] = of
}

// adopt gives one session to a loop.
func (a *adopter) adopt(in *lane.Lane, one *lane.Session) {
	x, y, known := one.Addresses()
	bytes, tagged := one.Tag()
	if !known || !tagged {
		return // it has ended
	}
	tag := record.TagOf(bytes)
	w := way{from: a.listeners[tag.Listener], to: a.upstreams[tag.Upstream]}
	if w.from == nil {
		w.from = a.unknownListener()
	}
	if w.to != nil {
		w.at = a.endpointAt(w.to, y[0])
	}
	at := a.socketOf(w.from, x[1])
	if at == nil {
		return // everything is about to end
	}
	to := a.ways[w]
	if to == nil {
		to = a.adoption(w)
		a.ways[w] = to
	}
	a.group.Adopt(in, one, &record.Record{Adopted: true, Client: source.TCP(x[0]), Local: x[1], EndpointAddress: y[0]}, at, w.from.Service, to)
}

// unknownListener is the listener of sessions whose own is not found.
func (a *adopter) unknownListener() *Listener {
	if a.unknown == nil {
		r := router.NewListener(&router.ListenerConfig{
			Name: admin.UnknownName, State: &router.ListenerState{Name: admin.UnknownName}, Wake: func() {}, Limits: relay.Limits{IdleTimeout: a.Idle}, Lane: worker.LaneOn, Now: a.Now,
		})
		a.unknown = &Listener{Name: admin.UnknownName, Router: r, Service: r.Service()}
	}
	return a.unknown
}

// socketOf returns the socket of a listener at which a session has come in, or another one of its if that is gone; nil: everything is about to end.
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
		if at = a.group.Unlistened(l.Name, l.Service); at != nil {
			a.without[l] = at
		}
	}
	return at
}

// adoption returns the router's part of a way.
func (a *adopter) adoption(w way) *router.Adoption {
	if w.to == nil {
		return w.from.Router.Adoption(admin.UnknownName, nil, nil)
	}
	if w.at != nil {
		if st := w.at.State(); st.Down || st.Ejected {
			a.Down(w.at)
		}
	}
	return w.from.Router.Adoption(w.to.Name, w.to.Snapshot, w.at)
}

// endpointAt returns the endpoint of an upstream that has an address, if that is a number; nil: none has, or two have.
func (a *adopter) endpointAt(u *Upstream, at netip.AddrPort) *router.Endpoint {
	all := a.endpoints[u]
	if all == nil {
		all = byAddress(u.Endpoints)
		a.endpoints[u] = all
	}
	return all[at]
}

// byAddress returns the endpoints whose addresses are numbers, by these. An address of two endpoints is of none.
func byAddress(endpoints []*router.Endpoint) map[netip.AddrPort]*router.Endpoint {
	all := make(map[netip.AddrPort]*router.Endpoint, len(endpoints))
	for _, e := range endpoints {
		if at, err := netip.ParseAddrPort(e.Address.Name); err == nil {
			add(all, netip.AddrPortFrom(at.Addr().Unmap(), at.Port()), e)
		}
	}
	return all
}
