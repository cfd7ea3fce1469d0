// Package source is the source of a client, and the rules that match it: the entries of allow,
// deny, match.source and accept_proxy.from are rules of one kind, made and asked here alone.
//
// A source that could not be found out is unknown: the zero [Source], which no rule matches,
// so that no client is let in, believed or counted by it. Nothing here allocates once a set
// was made; everything is safe for concurrent use.
package source

import (
	"errors"
	"fmt"
	"net/netip"
)

// ErrUnknown is the error of a client from an unknown source: it is
// refused.
var ErrUnknown = errors.New("the client's source is not known")

// ErrDenied is the error of a client that may not connect because of its source.
var ErrDenied = errors.New("the source is denied")

// A Source is where a client comes from: an address of TCP, or a unix socket, on which it
// has the credentials of the process that has connected. The zero value is neither: it is
// not known. It is comparable.
type Source struct {
	addr netip.Addr
	port uint16
	unix bool
	peer Credentials
}

// Credentials describe the process at the other end of a unix socket, as it connected: its
// effective user and group, without further groups that it is in, and its number, which may
// belong to another process now. The user and group 65534 may stand for any user of another
// user namespace (user_namespaces(7)).
type Credentials struct {
	UID, GID uint32
	PID      int32
}

// TCP returns the source of a client of TCP. An IPv4 address mapped into IPv6 is that IPv4
// address; an invalid address is an unknown source.
func TCP(at netip.AddrPort) Source {
	if !at.IsValid() {
		return Source{}
	}
	return Source{addr: at.Addr().Unmap(), port: at.Port()}
}

// Unix returns the source of a client of a unix socket.
func Unix(peer Credentials) Source { return Source{unix: true, peer: peer} }

// Known reports whether the source is known.
func (s Source) Known() bool { return s.unix || s.addr.IsValid() }

// AddrPort returns the address of a client of TCP; of all others it is not valid.
func (s Source) AddrPort() netip.AddrPort {
	if !s.addr.IsValid() {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(s.addr, s.port)
}

// Credentials returns the credentials of a client of a unix socket, and whether the client
// is one.
func (s Source) Credentials() (Credentials, bool) { return s.peer, s.unix }

// String names the source for a log: 192.0.2.1:5555, unix:uid=1000,gid=1000,pid=77 or unknown.
func (s Source) String() string {
	switch {
	case s.unix:
		return fmt.Sprintf("unix:uid=%d,gid=%d,pid=%d", s.peer.UID, s.peer.GID, s.peer.PID)
	case s.addr.IsValid():
		return s.AddrPort().String()
	}
	return "unknown"
}
