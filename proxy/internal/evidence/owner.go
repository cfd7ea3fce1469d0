package evidence

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/internal/kerneltrace"
)

// An Owner is the owner of an event: a session of a listener, or an endpoint. The zero value means that the owner
// is unknown.
type Owner struct {
	// Session is the client's address. Listener is the name of the listener that accepted the client, or its address
	// if there is no admin socket.
	Session  string `json:"session,omitempty"`
	Listener string `json:"listener,omitempty"`
	// Endpoint is the endpoint's address, with Upstream and Name if the configuration has it. For a session, it is
	// the endpoint in the list of sessions.
	Endpoint string `json:"endpoint,omitempty"`
	Upstream string `json:"upstream,omitempty"`
	Name     string `json:"name,omitempty"`
	// Client is set for a connection to an endpoint: the client and the listener of its session, if the session is
	// in the list of sessions.
	Client string `json:"client,omitempty"`
}

// String describes the owner in a few words.
func (o *Owner) String() string {
	switch {
	case o.Session != "":
		return "session " + o.Session + " of " + o.listener()
	case o.Listener != "":
		return o.listener()
	case o.Upstream != "":
		return fmt.Sprintf("endpoint %s of %s", admin.Label(o.Name, o.Endpoint), o.Upstream) + o.client()
	case o.Endpoint != "":
		return "connections to " + o.Endpoint + o.client()
	}
	return "unmatched"
}

func (o *Owner) client() string {
	if o.Client == "" {
		return ""
	}
	return ", for " + o.Client
}

func (o *Owner) listener() string { return "listener " + o.Listener }

// place returns the owner without its session.
func (o Owner) place() Owner {
	if o.Listener != "" {
		return Owner{Listener: o.Listener}
	}
	o.Client = ""
	return o
}

// An endpoint is an endpoint of the configuration.
type endpoint struct{ upstream, name string }

// owners finds owners by addresses.
type owners struct {
	listeners map[netip.AddrPort]string
	endpoints map[netip.AddrPort]endpoint
	sessions  map[string]admin.Session     // by client and listener
	clients   map[[2]netip.AddrPort]string // of sessions, by the local and the remote address of the connection to the endpoint
	names     bool                         // an admin socket has given the names
}

func newOwners() *owners {
	return &owners{listeners: make(map[netip.AddrPort]string), endpoints: make(map[netip.AddrPort]endpoint), sessions: make(map[string]admin.Session), clients: make(map[[2]netip.AddrPort]string)}
}

// addStatus adds the listeners and endpoints of a status. It skips unix sockets, which have no events.
func (o *owners) addStatus(s *admin.Status) {
	o.names = true
	for _, l := range s.Listeners {
		for _, text := range l.Addresses {
			if at, err := netip.ParseAddrPort(text); err == nil {
				o.listeners[plain(at)] = l.Name
			}
		}
	}
	for _, u := range s.Upstreams {
		for _, e := range u.Endpoints {
			if at, err := netip.ParseAddrPort(e.Address); err == nil {
				o.endpoints[plain(at)] = endpoint{u.Name, e.Name}
			}
		}
	}
}

// addSessions adds sessions by the addresses of their clients. With PROXY headers, the client's address is not the
// connection's. The owner's Session is then the connection's address.
func (o *owners) addSessions(list []admin.Session) {
	for _, s := range list {
		if at, err := netip.ParseAddrPort(s.Client); err == nil {
			o.sessions[plain(at).String()+" "+s.Listener] = s
		}
		local, err1 := netip.ParseAddrPort(s.EndpointLocal)
		remote, err2 := netip.ParseAddrPort(s.Endpoint)
		if err1 == nil && err2 == nil {
			o.clients[[2]netip.AddrPort{plain(local), plain(remote)}] = s.Client + " of listener " + s.Listener
		}
	}
}

func plain(at netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port())
}

// listener returns the name of the listener at an address, or of the listener at all addresses with that port.
func (o *owners) listener(at netip.AddrPort) string {
	at = plain(at)
	wildcards := []netip.Addr{at.Addr(), netip.IPv6Unspecified()} // which also stands for both families
	if at.Addr().Is4() {
		wildcards = slices.Insert(wildcards, 1, netip.IPv4Unspecified())
	}
	for _, a := range wildcards {
		if name, ok := o.listeners[netip.AddrPortFrom(a, at.Port())]; ok {
			return name
		}
	}
	return at.String()
}

// of returns the owner of a connection. The owner is unknown if the side is unknown.
func (o *owners) of(side kerneltrace.Side, local, remote netip.AddrPort) (owner Owner) {
	switch side {
	case kerneltrace.Accepted:
		owner.Listener = o.listener(local)
		if remote.IsValid() {
			owner.Session = plain(remote).String()
		}
		if s, ok := o.sessions[owner.Session+" "+owner.Listener]; ok {
			owner.Endpoint, owner.Upstream, owner.Name = s.Endpoint, s.Upstream, s.Name
		}
	case kerneltrace.Connected:
		owner.Endpoint = plain(remote).String()
		e := o.endpoints[plain(remote)]
		owner.Upstream, owner.Name = e.upstream, e.name
		if local.IsValid() {
			owner.Client = o.clients[[2]netip.AddrPort{plain(local), plain(remote)}]
		}
	}
	return owner
}

func (o *owners) event(e *kerneltrace.Event, began time.Duration) Event {
	out := Event{Kind: e.Kind, Reason: e.Reason, Count: e.Count, FirstS: (e.First - began).Seconds(), LastS: (e.Last - began).Seconds()}
	if e.Local.IsValid() {
		out.Local, out.Remote = e.Local.String(), e.Remote.String()
		out.Owner = o.of(e.Side, e.Local, e.Remote)
	}
	if e.Kind == kerneltrace.Drop {
		out.Direction = "out"
		if e.Incoming {
			out.Direction = "in"
		}
	}
	return out
}

func (o *owners) delay(d *kerneltrace.Duration) Delay {
	out := Delay{Name: periodNames[d.Period], Count: d.Count, Times: timesOf(&d.Histogram)}
	if d.Side == kerneltrace.Accepted {
		out.Owner = o.of(d.Side, d.Place, netip.AddrPort{})
	} else {
		out.Owner = o.of(d.Side, netip.AddrPort{}, d.Place)
	}
	if d.Device > 0 {
		out.Device = deviceName(d.Device)
	}
	return out
}

// deviceName returns the name of a device of this process's network namespace. A device of another namespace has
// only a number.
func deviceName(index int) string {
	if i, err := net.InterfaceByIndex(index); err == nil {
		return i.Name
	}
	return fmt.Sprintf("device %d", index)
}

func threadName(pid, tid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/comm", pid, tid))
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(string(text), "\n")
}
