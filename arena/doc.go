// Package arena keeps buffers outside of the garbage collector's heap: one mapping,
// made of huge pages where there are any, populated at start and cut into slots
// that are handed out by [Handle], an offset and a generation, not by pointer.
// Nothing in it is scanned, and a handle that was given back is refused.
//
// An [Arena] has a [Local] for each loop that uses it. A Local belongs to one goroutine
// at a time, and neither Get nor Put has an atomic operation or a lock, except when a
// whole chunk of 64 KiB changes hands:
//
//	a, err := arena.New(&arena.Config{Locals: 2})
//	l := a.Local(0)
//	h, err := l.Get(4096, arena.Residue)
//	buf, err := l.Bytes(h) // good until Put
//	err = l.Put(h)
//
// A [Ring] holds bytes in a slot, first in, first out, without a pointer of its own.
//
// Do not use it for a handful of buffers, for buffers that pass from goroutine to goroutine,
// or for memory with Go pointers: the collector does not see them there. Package pool has
// buffers for those.
//
// With the build tag invariants Put fills the slot with a pattern, and the Get that
// hands it out next, or Close, panics if the pattern has changed: the slot was written to after its
// release. The panic names the place of the release.
//
// On systems other than Linux, New reports [ErrNotSupported].
package arena
