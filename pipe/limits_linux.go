package pipe

import (
	"errors"
	"os"
	"strconv"
	"strings"

	"github.com/penstock/penstock/internal/feature"
	"github.com/penstock/penstock/internal/sys"
)

// readLimits reads the kernel's limits. A limit that cannot be read (in a sandbox without /proc) counts as the
// kernel's default; if that is wrong, the kernel refuses pipes later.
func readLimits() limits {
	l := limits{
		pageSize: os.Getpagesize(),
		maxSize:  int(readNumber("/proc/sys/fs/pipe-max-size", 1<<20)),
		soft:     readNumber("/proc/sys/fs/pipe-user-pages-soft", 16384),
		hard:     readNumber("/proc/sys/fs/pipe-user-pages-hard", 0),
		exempt:   exempt(),
	}
	n, err := sys.RlimitNoFile()
	if err != nil {
		n = 1024
	}
	l.descriptors = int64(min(n, 1<<30))
	if errors.Is(feature.PipeResize(), ErrNotSupported) {
		l.maxSize = min(l.maxSize, slots*l.pageSize) // in a sandbox
	}
	return l
}

func readNumber(file string, otherwise int64) int64 {
	text, err := os.ReadFile(file)
	if err != nil {
		return otherwise
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return otherwise
	}
	return n
}

// firstUserNamespace is the target of /proc/self/ns/user outside of containers with a user namespace of their
// own (PROC_USER_INIT_INO, include/linux/proc_ns.h).
const firstUserNamespace = "user:[4026531837]"

func exempt() bool {
	set, err := sys.Capabilities()
	if err != nil || !set.Has(sys.CAP_SYS_RESOURCE) && !set.Has(sys.CAP_SYS_ADMIN) {
		return false
	}
	ns, err := os.Readlink("/proc/self/ns/user")
	return err == nil && ns == firstUserNamespace
}
