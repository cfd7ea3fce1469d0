package dispatch

import (
	"net/netip"
	"sync"
	"time"

	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/proxy/balance"
	"github.com/penstock/penstock/proxy/core"
	"github.com/penstock/penstock/proxy/limit"
	"github.com/penstock/penstock/proxy/match"
	"github.com/penstock/penstock/proxy/socket"
	"github.com/penstock/penstock/proxy/terminate"
	"github.com/penstock/penstock/relay"
)

// A Route is where the clients go that an entry of a listener's table matches.
type Route struct {
	View  *View          // nil if there is a Split
	Split *balance.Split // shares clients among Views
	Views []*View
}

// ListenerConfig sets up a [Listener]. What has no default said may be zero.
type ListenerConfig struct {
	Name string
	Door *Door // required
	// Access says which sources may come in.
	Access limit.Access
	// Sources limits each source by itself, Process the rate of all listeners; nil: not.
	Sources *limit.Sources
	Process *limit.Rate
	// SourcePrefix is how many bits of an address of IPv4 and of one of IPv6 make a source
	// for those who judge endpoints, as [health.SourceOf] takes them.
	SourcePrefix [2]int
	// DoorOf returns the door of the listener that has the address at which a client came in,
	// which may be another one than when it came; nil: none has. It is called on loops, several
	// at a time, and must not wait. If it is nil a listener keeps its addresses.
	DoorOf func(*core.Client) *Door
	// Nudge has [core.Admitter.Room] asked again; required.
	Nudge func()

	// Table has an entry for each of Routes, Default is for clients that none matches;
	// nil: they are refused.
	Table   *match.Table
	Routes  []Route
	Default *View
	// BySource and ByPort say that a route depends on these: otherwise the kernel is not
	// asked for them.
	BySource, ByPort bool
	// Transparent sends clients that would otherwise be refused for want of a route to
	// their original destination; Own says which addresses are this process's own.
	Transparent bool
	Own         func(netip.AddrPort) bool

	Preread core.Preread
	Limits  relay.Limits // of sessions; Of is set by the listener
	Options socket.Options
	// Connect bounds the attempt to reach one endpoint; 0: as the kernel likes.
	Connect time.Duration
	// TLS terminates it; nil: it is passed through.
	TLS *terminate.Server
	// Handed serves a client whose TLS ends or begins in this process, on a goroutine of
	// its own; required if TLS is set, or that of a View.
	Handed func(h *core.Handed, of *Handed)

	// Now is the clock that the upstreams' breakers and outlier detection have.
	Now func() int64
	// Resolver looks up the hosts of endpoints that are names.
	Resolver core.Resolver
}

// A Listener is a listener as one generation of the configuration has it.
type Listener struct {
	cfg    ListenerConfig
	limits relay.Limits
	bonds  sync.Map // bondKey to *bond
	door   *Door
}

// NewListener returns a listener, whose Service is for as many sockets as it binds.
func NewListener(cfg *ListenerConfig) *Listener {
	l := &Listener{cfg: *cfg, limits: cfg.Limits, door: cfg.Door}
	l.limits.Of = origin{l.door}
	return l
}

// Name returns its name.
func (l *Listener) Name() string { return l.cfg.Name }

// Config returns what it was made with, which is not to be changed.
func (l *Listener) Config() *ListenerConfig { return &l.cfg }

// Service returns what package core does for its clients.
func (l *Listener) Service() *core.Service {
	return &core.Service{
		Admitter:  (*admission)(l),
		Preread:   l.cfg.Preread,
		Limits:    &l.limits,
		Options:   l.cfg.Options,
		NewSearch: func() core.Search { return &Search{listener: l} },
	}
}

// Enforce has the listener be the generation in force: clients that came before and have not got
// an endpoint yet are held to its rules of access, to its rules for PROXY headers and to what it
// asks of certificates, and those of them whom nobody serves go where it leads.
func (l *Listener) Enforce() { l.door.current.Store(l) }

// Forget lets go of what is kept for sessions to endpoints that are gone.
func (l *Listener) Forget(gone map[*Endpoint]bool) {
	l.bonds.Range(func(key, _ any) bool {
		if gone[key.(bondKey).endpoint] {
			l.bonds.Delete(key)
		}
		return true
	})
}

func (l *Listener) now() int64 { return l.cfg.Now() }

// viewFor returns where a client goes, nil if there is nowhere.
func (l *Listener) viewFor(c *core.Client) *View {
	if l.cfg.Table != nil && l.cfg.Table.Len() > 0 {
		of := match.Client{ServerName: c.Hello.ServerName, ALPN: c.Hello.ALPN}
		if l.cfg.BySource {
			of.Source = c.Source()
		}
		if l.cfg.ByPort {
			of.Port = l.destination(c).Port()
		}
		if i := l.cfg.Table.Find(&of); i >= 0 {
			r := &l.cfg.Routes[i]
			if r.Split != nil {
				return r.Views[r.Split.Next()]
			}
			return r.View
		}
	}
	return l.cfg.Default
}

// destination returns what a client has connected to: that of its PROXY header, or where
// it wanted to go before it was brought here, or this listener.
func (l *Listener) destination(c *core.Client) netip.AddrPort {
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
func (l *Listener) original(c *core.Client) (loop.Address, error) {
	at := c.Original()
	if !at.IsValid() || l.cfg.Own != nil && l.cfg.Own(at) {
		return loop.Address{}, ErrLoop
	}
	return loop.Address{AddrPort: at}, nil
}
