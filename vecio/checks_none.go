//go:build !invariants

package vecio

// Without the build tag invariants, borrowed pieces are not checked.
const invariants = false

type site struct{}

func here() site { return site{} }

type checks struct{}

func (*checks) borrow([]byte, int64) {}
func (*checks) sent(int64, int64)    {}
func (*checks) reset()               {}
