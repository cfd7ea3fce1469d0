package reactor

import (
	"fmt"
	"os"

	"github.com/penstock/penstock/internal/sys"
)

// spare is how many descriptors a process needs for everything else.
const spare = 64

// Descriptors makes sure that this process may have n connections open at once. If necessary,
// it raises the soft limit of RLIMIT_NOFILE.
func Descriptors(n int) error {
	need := uint64(n) + spare
	soft, hard, err := sys.RlimitNoFileRange()
	switch {
	case err != nil:
		return os.NewSyscallError("prlimit", err)
	case need <= soft:
		return nil
	case need > hard:
		return fmt.Errorf("%d connections need %d descriptors, and the hard limit is %d: plan for %d, or raise the limit with ulimit -Hn %d",
			n, need, hard, max(hard, spare)-spare, need)
	}
	return os.NewSyscallError("prlimit", sys.SetRlimitNoFile(need, hard))
}
