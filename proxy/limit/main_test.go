package limit_test

import (
	"math/rand/v2"
	"net/netip"
)

// any4 and any6 are addresses by number.
func any4(n uint32) netip.Addr {
	return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
}

func any6(r *rand.Rand) netip.Addr {
	var b [16]byte
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	b[0] = 0x20 // not a mapped one
	return netip.AddrFrom16(b)
}
