//go:build !invariants

package pipe

const invariants = false

// returned does nothing without the build tag invariants.
type returned struct{}

func (*returned) take()   {}
func (*returned) give()   {}
func (*returned) refuse() {}
