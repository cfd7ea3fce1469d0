package source

import (
	"fmt"
	"net/netip"
)

// A PrefixError says why a text is no address and no network. It wraps [ErrRule].
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
