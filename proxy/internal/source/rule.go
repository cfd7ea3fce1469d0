package source

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
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

// UnixUser returns the rule for clients of unix sockets that run as a user.
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

// ErrRule is wrapped by the errors of [ParseRule] and [ParsePrefix].
var ErrRule = errors.New("not a source")

// ParseRule reads the rule for all clients (all), for clients of an address, of a network, of unix sockets
// (unix), or of a user or group there (unix:uid=1000, unix:gid=1000). The error is a [*PrefixError].
func ParseRule(text string) (Rule, error) {
	fix := "write 10.0.0.0/8, 2001:db8::/32, one address, unix or all"
	switch {
	case text == "all":
		return All(), nil
	case text == "unix":
		return UnixClients(), nil
	case strings.HasPrefix(text, "unix"):
		return parseUnix(text)
	case strings.HasPrefix(text, "uid=") || strings.HasPrefix(text, "gid="):
		fix = "write unix:" + text
	}
	p, err := ParsePrefix(text, fix)
	if err != nil {
		return Rule{}, err
	}
	return Prefix(p), nil
}

// parseUnix reads unix:uid=NUMBER or unix:gid=NUMBER.
func parseUnix(text string) (Rule, error) {
	word, number, _ := strings.Cut(strings.TrimPrefix(text, "unix:"), "=")
	id, err := strconv.ParseUint(number, 10, 32)
	switch {
	case word != "uid" && word != "gid":
		return Rule{}, &PrefixError{fmt.Sprintf("%q does not name clients", text), "write unix for all clients of unix sockets, unix:uid=1000 or unix:gid=1000 for some"}
	case err != nil || id == 1<<32-1: // no user and no group has this number
		return Rule{}, &PrefixError{fmt.Sprintf("%q is not the number of a user or a group", number), "write a number, as id(1) prints it, such as unix:" + word + "=1000"}
	case word == "uid":
		return UnixUser(uint32(id)), nil
	}
	return UnixGroup(uint32(id)), nil
}

// Text returns the rule as [ParseRule] takes it: an address without its length.
func (r Rule) Text() string {
	if r.kind == addresses && r.prefix.IsSingleIP() {
		return r.prefix.Addr().String()
	}
	return r.String()
}

// A PrefixError says why a text is no rule, or no address and no network. It wraps [ErrRule].
type PrefixError struct {
	Problem string // with the text
	Fix     string // the text to write instead
}

// Error returns one line.
func (e *PrefixError) Error() string { return e.Problem + ": " + e.Fix }

// Unwrap returns [ErrRule].
func (*PrefixError) Unwrap() error { return ErrRule }

// ParsePrefix reads an address or a network, as files and requests have it. A network with bits beyond its
// length is an error: 10.0.0.7/8 may have been meant as either. So is a zone, and IPv4 within IPv6. fix says
// what to write in place of any other text. The error is a [*PrefixError].
func ParsePrefix(text, fix string) (netip.Prefix, error) {
	prefix, err := netip.ParsePrefix(text)
	if addr, ipErr := netip.ParseAddr(text); ipErr == nil && addr.Zone() == "" {
		prefix, err = netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	problem := ""
	switch {
	case err != nil:
		problem = "%q is not an address or a CIDR"
	case prefix.Addr().Is4In6():
		problem, fix = "%q is an IPv4 address within IPv6", "write it as IPv4"
	case prefix != prefix.Masked():
		problem, fix = "%q has bits beyond its length", fmt.Sprintf("write %v, or %v/%d", prefix.Masked(), prefix.Addr(), prefix.Addr().BitLen())
	default:
		return prefix, nil
	}
	return netip.Prefix{}, &PrefixError{fmt.Sprintf(problem, text), fix}
}

// Everyone reports whether the rule is for all clients of IPv4 or of IPv6, as a network: 0.0.0.0/0 or ::/0.
func (r Rule) Everyone() bool { return r.kind == addresses && r.prefix.Bits() == 0 }
