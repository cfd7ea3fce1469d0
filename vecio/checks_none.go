//go:build !invariants

package vecio

// Borrowed pieces are not looked at in this build: see the build tag invariants.
const invariants = false

type site struct{}

func here() site { return site{} }

type checks struct{}

func (*checks) borrow([]byte, int64) {}
func (*checks) sent(int64, int64)    {}
func (*checks) reset()               {}
