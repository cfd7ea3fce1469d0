//go:build race

package evring

import "sync/atomic"

// order shows the order of the ring to the race detector, which ignores memory that is not Go's: call lead
// before a store into shared memory that gives something away, and follow after the load that takes it.
type order struct{ edge atomic.Uint32 }

func (o *order) lead()   { o.edge.Add(1) }
func (o *order) follow() { o.edge.Load() }
