package limit_test

import (
	"math/rand/v2"
	"net/netip"

	"github.com/penstock/penstock/proxy/internal/source"
)

// at is a client of TCP.
func at(addr netip.Addr) source.Source { return source.TCP(netip.AddrPortFrom(addr, 1)) }

// any4 and any6 are clients of TCP by number.
func any4(n uint32) source.Source {
	return at(netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}))
}

func any6(r *rand.Rand) source.Source {
	var b [16]byte
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	b[0] = 0x20 // not a mapped one
	return at(netip.AddrFrom16(b))
}
