package health

import (
	"hash/maphash"

	"github.com/penstock/penstock/proxy/internal/source"
)

// A Source is the origin of a client: a prefix of its address, a user of a unix socket, or a
// substitute if the origin was not looked up. A failure may be the client's own doing
// ([Rejected], [Silent]). While others are served, one source alone can neither eject an
// endpoint nor open a breaker by such failures, see [OutlierMonitor.ReportFrom].
type Source uint64

const (
	// UnsampledSource: the connection is not one of the sample, and its origin is not known.
	UnsampledSource Source = iota
	// NoSource: the connection is one of the sample, and its outcome is no client's doing.
	NoSource
	// Unnamed is the one source of all clients with unknown origin.
	Unnamed

	// named distinguishes the others from these.
	named Source = 1 << 63
)

// site is the number of bits that the addresses of an IPv6 site have in common, at least.
const site = 48

// sourceSeed differs in each process, so that no client can find addresses that collide with
// those of another one.
var sourceSeed = maphash.MakeSeed()

// SourceOf returns the source of a client. bits are the lengths of the prefix that makes one
// source: the first for IPv4, the second for IPv6. 0 means 32 and 64. For IPv6 no more than 48
// bits count, because one site may have a /48 (RFC 6177): one customer must not be several
// witnesses. All clients of a user of a unix socket are one source.
func SourceOf(src source.Source, bits [2]int) Source {
	if peer, ok := src.Credentials(); ok {
		return named | Source(maphash.Comparable(sourceSeed, peer.UID))
	}
	a := src.AddrPort().Addr().WithZone("")
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

// doubts reports whether a failure of a connection from s may be the client's doing.
func (s Source) doubts(o Outcome) bool { return s != NoSource && o.mayBeClient() }
