package health

import (
	"hash/maphash"

	"github.com/penstock/penstock/proxy/source"
)

// A Source is where a client comes from: a prefix of its address, a user of a unix socket, or
// what is said in its place of a connection that nothing was asked about. A failure that may be the client's
// own doing ([Rejected], [Silent]) is nothing by which one source alone has an endpoint
// ejected or a breaker opened while others are served, see [Member.ReportFrom].
type Source uint64

const (
	// Anybody: the connection is not one of the sample, and where it came from is not
	// known.
	Anybody Source = iota
	// Nobody: the connection is one of the sample, and what it came to is no client's
	// doing.
	Nobody
	// Unnamed is the one source of all clients of whom it is not known where they come from.
	Unnamed

	// named sets the others apart from these.
	named Source = 1 << 63
)

// site is how many bits of an address of IPv6 the addresses of a site have in common, at least.
const site = 48

// sourceSeed is another one in each process, so that nobody finds addresses that pass for
// those of somebody else.
var sourceSeed = maphash.MakeSeed()

// SourceOf returns the source of a client, of whose address so many bits say what is one
// source: the first of an address of IPv4, the second of one of IPv6. 0 means 32 and 64. Of IPv6
// no more than 48 count, for that is what one site may have (RFC 6177): one customer is not to
// be several witnesses. All clients of a user of a unix socket are one.
func SourceOf(of source.Source, bits [2]int) Source {
	if peer, ok := of.Credentials(); ok {
		return named | Source(maphash.Comparable(sourceSeed, peer.UID))
	}
	a := of.AddrPort().Addr().WithZone("")
	n := bits[1]
	switch {
	case !a.IsValid():
		return Unnamed
	case a.Is4() && bits[0] == 0:
		n = 32
	case a.Is4():
		n = bits[0]
	case n == 0 || n > site:
		n = site
	}
	p, err := a.Prefix(n)
	if err != nil {
		return Unnamed
	}
	return named | Source(maphash.Comparable(sourceSeed, p))
}

// doubts reports whether a failure of a connection from there may be the client's doing.
func (s Source) doubts(o Outcome) bool { return s != Nobody && o.mayBeClient() }
