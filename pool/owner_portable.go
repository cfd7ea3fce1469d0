//go:build race || penstock_portable || penstock_nolinkname || !linux || !amd64

package pool

// The portable half of the latch: there are no owners, everybody takes the
// mutex. What the functions below would do is done only for a latch that has an
// owner, so they do nothing, and the compiler drops the code that calls them.

type owner struct{}

func canOwn() bool { return false }

func (l *latch) tryEnter() bool { return false }

func (*owner) leave() {}

func (*owner) occupied() bool { return false }

func (l *latch) peek(_, _ *uint32) (uint32, bool) { return 0, false }

func barrier() {}
