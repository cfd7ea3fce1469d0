//go:build gc && !race && !penstock_portable && !penstock_nolinkname && linux && amd64

package pool

import "sync/atomic"

func (*owner) acquired() {}
func (*owner) releases() {}

// hint reads a counter that the owner may be changing.
func hint(n *uint32) uint32 { return atomic.LoadUint32(n) }
