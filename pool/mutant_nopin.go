//go:build penstock_mutant_nopin

package pool

import _ "unsafe" // for go:linkname

const (
	mutant = noPin
	canPin = true
)

//go:linkname runtimePin runtime.procPin
func runtimePin() int

//go:linkname runtimeUnpin runtime.procUnpin
func runtimeUnpin()

func procPin() int {
	pid := runtimePin()
	runtimeUnpin()
	return pid
}

func procUnpin() {}
