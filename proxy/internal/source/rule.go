package source

import (
	"net/netip"
	"strconv"
)

// A Rule is for some sources. The zero value is for none. It is comparable.
type Rule struct {
	kind   kind
	prefix netip.Prefix
	id     uint32
}

type kind uint8

const (
	none kind = iota
	all
	addresses
	anyUnix
	unixUser
	unixGroup
)

// All returns the rule for every client with a known source.
func All() Rule { return Rule{kind: all} }

// Prefix returns the rule for the addresses of a network. IPv4 addresses are in no IPv6
// network, except mapped ones: ::ffff:10.0.0.0/104 is 10.0.0.0/8. Zones do not matter, nor do
// bits beyond the length. An invalid prefix matches no client.
func Prefix(p netip.Prefix) Rule {
	addr, bits := p.Addr(), p.Bits()
	switch {
	case !p.IsValid():
		return Rule{}
	case addr.Is4In6() && bits >= 96:
		addr, bits = addr.Unmap(), bits-96
	}
	return Rule{kind: addresses, prefix: netip.PrefixFrom(addr, bits).Masked()}
}

// UnixClients returns the rule for all clients of unix sockets.
func UnixClients() Rule { return Rule{kind: anyUnix} }

// UnixUser returns the rule for those of a user.
func UnixUser(uid uint32) Rule { return Rule{kind: unixUser, id: uid} }

// UnixGroup returns the rule for clients with that effective group.
func UnixGroup(gid uint32) Rule { return Rule{kind: unixGroup, id: gid} }

// Contains reports whether the rule is for a source.
func (r Rule) Contains(s Source) bool {
	switch r.kind {
	case all:
		return s.Known()
	case addresses:
		return s.addr.IsValid() && r.prefix.Contains(s.addr.WithZone(""))
	case anyUnix:
		return s.unix
	case unixUser:
		return s.unix && s.peer.UID == r.id
	case unixGroup:
		return s.unix && s.peer.GID == r.id
	}
	return false
}

// Covers reports whether the rule matches every client that another one matches.
func (r Rule) Covers(o Rule) bool {
	switch {
	case r == o, r.kind == all, o.kind == none:
		return true
	case r.kind == addresses && o.kind == addresses:
		return r.prefix.Bits() <= o.prefix.Bits() && r.prefix.Contains(o.prefix.Addr())
	}
	return r.kind == anyUnix && o.Unix()
}

// Unix reports whether the rule is for clients of unix sockets alone.
func (r Rule) Unix() bool { return r.kind == anyUnix || r.kind == unixUser || r.kind == unixGroup }

// String returns the rule as it is written in a configuration.
func (r Rule) String() string {
	switch r.kind {
	case all:
		return "all"
	case addresses:
		return r.prefix.String()
	case anyUnix:
		return "unix"
	case unixUser:
		return "unix:uid=" + strconv.FormatUint(uint64(r.id), 10)
	case unixGroup:
		return "unix:gid=" + strconv.FormatUint(uint64(r.id), 10)
	}
	return "none"
}
