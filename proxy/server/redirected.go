package server

import (
	"cmp"
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/loop"
	"github.com/penstock/penstock/proxy/internal/worker"
	"github.com/penstock/penstock/proxy/sockopt"
)

// original is the name of the upstream to which a transparent listener sends clients without a route.
const original = ""

// redirections are the destinations that a NAT rule has changed for clients of this machine, so that they have come to this
// process. A rule may tell processes apart: so it is a circle only if a socket of this process has come by it.
type redirections struct {
	machine    atomic.Pointer[func(netip.Addr) bool]
	any        atomic.Bool                     // redirected has had entries
	redirected map[netip.AddrPort]*redirection // at most mostKnown; guarded by circles.mu
}

// look reads the addresses of this machine.
func (r *redirections) look() {
	local := sockopt.Local()
	local(netip.Addr{}) // reads them now: loops must not wait
	r.machine.Store(&local)
}

// A redirection is one destination.
type redirection struct {
	latest []dialing         // the sockets of this process that have connected there last, in a ring
	next   int               // index in latest, if that is full
	came   map[string]coming // by the upstream that connected there
	again  string            // why its listener does not connect there itself; "": it may
}

// mostLatest bounds the sockets. A circle that it hides is found when it comes round again.
const mostLatest = 16

// A dialing is a socket that was about to connect. Later its descriptor may be another socket's: so it is asked again before a
// client is taken for the other end of the socket. Package net's socket gets another descriptor when a loop takes it over. Its
// address alone counts, for edgeTime: until then the kernel chooses other ports for others.
type dialing struct {
	fd       int // negative: package net's socket is connected
	upstream string
	local    netip.AddrPort // once it was asked for
	at       int64          // clock
}

// is reports whether a client is the other end of the socket. Other clients cost one system call together.
func (d *dialing) is(peer netip.AddrPort, now int64) bool {
	if d.fd >= 0 && (d.local.Port() == 0 || d.local == peer) {
		d.local = boundTo(d.fd)
	}
	return d.local == peer && (d.fd >= 0 || now-d.at < int64(edgeTime))
}

func boundTo(fd int) netip.AddrPort {
	at, _ := sys.LocalName(fd)
	return plain(at.AddrPort)
}

// A coming is where a socket of this process has come by a redirection. It counts for edgeTime: rules change.
type coming struct {
	listener string
	at       int64
}

// meet looks at a client before a connection is made for it, and notes the listener if the client is a socket of this process
// that has come by a redirection. A client from elsewhere costs no system call, and a client of this machine costs one.
func (c *circles) meet(in *ownAddresses, listener string, by *worker.Client, upstream string, to loop.Address) {
	local := c.machine.Load()
	if by == nil || local == nil || by.Listening() == nil || !by.Listening().TCP {
		return
	}
	peer := plain(by.Peer().AddrPort())
	if !(*local)(peer.Addr()) {
		return
	}
	at := plain(to.AddrPort)
	if upstream != original {
		at = plain(by.Tracked())
	}
	if !at.IsValid() || slices.ContainsFunc(in.ports[at.Port()], func(a arrival) bool {
		return a.ip == at.Addr() || a.ip.IsUnspecified() && a.ip.Is4() == at.Addr().Is4() && (*local)(at.Addr())
	}) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.redirected[at]
	if r == nil {
		if c.redirected == nil || len(c.redirected) >= mostKnown {
			c.redirected = make(map[netip.AddrPort]*redirection)
		}
		r = &redirection{came: make(map[string]coming)}
		c.redirected[at] = r
		c.any.Store(true)
	}
	for i := range r.latest {
		if d := &r.latest[i]; d.is(peer, c.now()) {
			r.came[d.upstream] = coming{listener, c.now()}
			r.latest, r.again = r.latest[:0], ""
			return
		}
	}
}

// reaches returns the listener to which connections of an upstream come; "": it is not known.
func (r *redirection) reaches(upstream string, now int64) string {
	if last, ok := r.came[upstream]; ok && now-last.at < int64(edgeTime) {
		return last.listener
	}
	delete(r.came, upstream)
	return ""
}

// dials notes a socket that is about to connect, or a socket of package net that is connected.
func (r *redirection) dials(fd int, connected bool, upstream string, now int64) {
	d := dialing{fd: fd, upstream: upstream, at: now}
	if connected {
		d.fd, d.local = -1, boundTo(fd)
	}
	if len(r.latest) < mostLatest {
		r.latest = append(r.latest, d)
		return
	}
	r.latest[r.next] = d
	r.next = (r.next + 1) % mostLatest
}

// ends returns why an upstream cannot connect to the redirection, or "": it would be in the circle, or its clients would come
// to the circle of a transparent listener.
func (r *redirection) ends(upstream, why string) string {
	if upstream == original {
		r.again = why
	}
	return cmp.Or(why, r.again)
}

// plain returns an address without what the kernel's forms of it differ in.
func plain(at netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port())
}
