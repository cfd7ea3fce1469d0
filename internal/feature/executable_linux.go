package feature

import (
	"os"

	"github.com/penstock/penstock/internal/sys"
)

var executableMemory = Probe{Do: tryExecutableMemory}

// ExecutableMemory reports whether memory that this process has written may be made executable (mprotect(2)
// with PROT_EXEC), as a compiler in the process needs. MemoryDenyWriteExecute of systemd.exec(5), PR_SET_MDWE
// of prctl(2) and SELinux (execmem) refuse that.
func ExecutableMemory() error { return executableMemory.Supported() }

func tryExecutableMemory() error {
	const feature = "executable memory"
	b, err := sys.MmapAnonymous(os.Getpagesize(), sys.PROT_READ|sys.PROT_WRITE, sys.MAP_PRIVATE)
	if err != nil {
		return judge(feature, "mmap", err)
	}
	defer sys.Munmap(b)
	b[0] = 0
	if err := sys.Mprotect(b, sys.PROT_READ|sys.PROT_EXEC); err != nil {
		return judge(feature, "mprotect PROT_EXEC", err)
	}
	return nil
}
