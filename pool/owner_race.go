//go:build gc && race && !penstock_portable && !penstock_nolinkname && linux && amd64

package pool

// The detector's own work has fences, so a missing barrier does not show in its builds: TestMutants
// builds without it.

import (
	"runtime"
	"unsafe"
)

// acquired has the race detector know that all comes after what was done inside before.
func (o *owner) acquired() { runtime.RaceAcquire(unsafe.Pointer(&o.entered)) }

// releases has it know that all comes before what is done inside after.
func (o *owner) releases() { runtime.RaceReleaseMerge(unsafe.Pointer(&o.entered)) }

// hint reads a counter that its owner may be changing, by a plain store: the one race that is meant.
//
//go:norace
func hint(n *uint32) uint32 { return *n }
