//go:build !penstock_nolinkname

package pool

import _ "unsafe" // for go:linkname

const canPin = true

// procPin keeps the goroutine on its P, without preemption, until procUnpin, and returns the P's number. Until
// then the goroutine must not block.
//
// The runtime marks both functions as reachable by linkname and promises to keep them, because many programs
// use them (go.dev/issue/67401). Their types have not changed since Go 1.3. The build tag penstock_nolinkname
// does without them.
//
//go:linkname procPin runtime.procPin
func procPin() int

//go:linkname procUnpin runtime.procUnpin
func procUnpin()
