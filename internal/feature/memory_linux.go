package feature

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"github.com/penstock/penstock/internal/sys"
)

var (
	hugePages            = Probe{Do: tryHugePages}
	transparentHugePages = Probe{Do: tryTransparentHugePages}
)

// HugePageSize is the size of the pages that HugePages asks for, in bytes.
const HugePageSize = 2 << 20

// HugePages reports whether this process gets a page of 2 MiB from the pages that the administrator has
// reserved (MAP_HUGETLB of mmap(2)). ENOMEM means that none is free, which may differ next time.
func HugePages() error { return hugePages.Supported() }

// TransparentHugePages reports whether memory that is marked with MADV_HUGEPAGE (madvise(2)) is made of huge
// pages. If not, because of a setting or a lack of contiguous memory, that may differ next time.
func TransparentHugePages() error { return transparentHugePages.Supported() }

func tryHugePages() error {
	const feature = "huge pages"
	b, err := sys.MmapAnonymous(HugePageSize, sys.PROT_READ|sys.PROT_WRITE, sys.MAP_PRIVATE|sys.MAP_HUGETLB|sys.MAP_HUGE_2MB)
	if err != nil {
		return judge(feature, "mmap MAP_HUGETLB", err)
	}
	defer sys.Munmap(b)
	// The mapping has reserved a page, but a cgroup may still refuse it, by SIGBUS at the first access.
	if err := sys.Madvise(b, sys.MADV_POPULATE_WRITE); err != nil {
		return os.NewSyscallError("madvise MADV_POPULATE_WRITE", err)
	}
	return nil
}

// errNoHugePage is not conclusive: settings change, and memory becomes free.
var errNoHugePage = errors.New("marked with MADV_HUGEPAGE, but made of small pages")

func tryTransparentHugePages() error {
	const feature = "transparent huge pages"
	size := transparentSize()
	b, err := sys.MmapAnonymous(2*size, sys.PROT_READ|sys.PROT_WRITE, sys.MAP_PRIVATE)
	if err != nil {
		return judge(feature, "mmap", err)
	}
	defer sys.Munmap(b)
	if err := sys.Madvise(b, sys.MADV_HUGEPAGE); err != nil {
		return judge(feature, "madvise MADV_HUGEPAGE", err)
	}
	start := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	aligned := (start + uintptr(size) - 1) &^ uintptr(size-1)
	b[aligned-start] = 1 // the first touch makes the whole page
	huge, err := anonHugePages(aligned)
	switch {
	case err != nil:
		return fmt.Errorf("penstock: %s: %w", feature, err)
	case huge == 0:
		return fmt.Errorf("penstock: %s: %w", feature, errNoHugePage)
	}
	return nil
}

// transparentSize is the size of a transparent huge page: 2 MiB, except on kernels with
// large base pages.
func transparentSize() int {
	text, err := os.ReadFile("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size")
	if err != nil {
		return HugePageSize
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || n <= 0 || n > 1<<29 || n&(n-1) != 0 {
		return HugePageSize
	}
	return n
}

// anonHugePages returns how many KiB of the mapping that contains the address are
// huge pages (proc_pid_smaps(5)).
func anonHugePages(address uintptr) (int, error) {
	text, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return 0, err
	}
	inside := false
	for line := range bytes.Lines(text) {
		var from, to uintptr
		if n, _ := fmt.Sscanf(string(line), "%x-%x ", &from, &to); n == 2 {
			inside = from <= address && address < to
			continue
		}
		var kib int
		if n, _ := fmt.Sscanf(string(line), "AnonHugePages: %d kB", &kib); inside && n == 1 {
			return kib, nil
		}
	}
	return 0, errors.New("/proc/self/smaps does not report the pages")
}
