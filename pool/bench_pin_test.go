package pool_test

import _ "unsafe" // for go:linkname

// The per-P rivals need the runtime functions that sync.Pool uses. While a
// goroutine is pinned it is neither moved to another P nor stopped, so it must
// not block.

//go:linkname procPin runtime.procPin
func procPin() int

//go:linkname procUnpin runtime.procUnpin
func procUnpin()
