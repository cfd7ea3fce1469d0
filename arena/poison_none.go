//go:build !invariants

package arena

// Without the build tag invariants, slots are neither filled nor checked.
const invariants = false

type releases struct{}

func newReleases(int) releases       { return releases{} }
func poison([]byte)                  {}
func (releases) note(uint32, int)    {}
func (releases) check([]byte, int64) {}
func (*Arena) checkAll()             {}
