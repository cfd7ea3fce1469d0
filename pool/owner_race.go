//go:build gc && race && !penstock_portable && !penstock_nolinkname && linux && amd64

package pool

// The race detector's own work has fences, so its builds do not show a missing barrier: TestMutants builds
// without it.

import (
	"runtime"
	"unsafe"
)

// acquired tells the race detector that everything after it follows what was done inside before.
func (o *owner) acquired() { runtime.RaceAcquire(unsafe.Pointer(&o.entered)) }

// releases tells the race detector that everything before it precedes what is done inside later.
func (o *owner) releases() { runtime.RaceReleaseMerge(unsafe.Pointer(&o.entered)) }

// hint reads a counter that the owner may be changing by a plain store: the one intended race.
//
//go:norace
func hint(n *uint32) uint32 { return *n }
