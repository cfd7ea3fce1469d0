// Package arena keeps buffers outside of the garbage collector's heap, in one mapping: made of huge pages where
// possible, populated at the start, and cut into slots. It hands slots out by [Handle], an offset and a
// generation, not by pointer. The collector scans none of it, and a handle that was given back is refused.
//
// An [Arena] has a [Local] for each loop that uses it. A Local belongs to one goroutine
// at a time, and neither Get nor Put has an atomic operation or a lock, except when a
// whole chunk of 64 KiB changes hands:
//
//	a, err := arena.New(&arena.Config{Locals: 2})
//	l := a.Local(0)
//	h, err := l.Get(4096, arena.Residue)
//	buf, err := l.Bytes(h) // valid until Put
//	err = l.Put(h)
//
// A [Ring] holds bytes in a slot, first in, first out, without a pointer of its own.
//
// Do not use it for a handful of buffers, for buffers that pass from goroutine to goroutine, or for memory with
// Go pointers, which the collector does not see there. Package pool keeps such buffers.
//
// With the build tag invariants, Put fills the slot with a pattern. If the pattern has changed, because the
// slot was written to after its release, the Get that hands the slot out next, or Close, panics. The panic
// names the place of the release.
//
// On systems other than Linux, New returns [ErrNotSupported].
package arena
