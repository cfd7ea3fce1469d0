//go:build race || penstock_portable || penstock_nolinkname || !linux || !amd64

package pool

// The portable half of the latch: there are no owners, everybody takes the
// mutex. All of these functions but the two at the end are never called on a
// latch that is shared, as all are here; they are constants, so that the compiler
// drops the code that is of no use.

func canOwn() bool { return false }

func (l *latch) tryEnter() bool { return false }

func (l *latch) leave() {}

func (l *latch) occupied() bool { return false }

func (l *latch) peek(_, _ *uint32) (uint32, bool) { return 0, false }

func barrier() {}
