package doctor

import (
	"errors"
	"os"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/privilege"
)

func TestJudgeArena(t *testing.T) {
	const bytes = 4 << 20
	judgeAll(t, []verdict{
		{"reserved", arenaMemory{Pages: "reserved huge pages", Bytes: bytes, Huge: bytes}, OK, false, "4 MiB of reserved huge pages", "", ""},
		{"half of it", arenaMemory{Pages: "transparent huge pages", Bytes: bytes, Huge: bytes / 2}, OK, false, "huge pages, 2 MiB of it huge", "", ""},
		{"plain", arenaMemory{Pages: "plain pages", Bytes: bytes, place: bare}, Degraded, false, "4 MiB of plain pages", "1,024 pages to the CPU instead of 2", "sysctl -w vm.nr_hugepages=64"},
		{"plain, though transparent ones are on", arenaMemory{Pages: "plain pages", Bytes: bytes, setting: "madvise", allowed: known(1), place: bare}, Degraded, false, "", "", "--system"},
		{"plain, taken away", arenaMemory{Pages: "plain pages", Bytes: bytes, setting: "always", allowed: known(0), place: bare}, Degraded, false, "", "", "PR_SET_THP_DISABLE"},
		{"unbound", arenaMemory{Pages: "reserved huge pages", Bytes: bytes, Huge: bytes, unbound: os.NewSyscallError("mbind", syscall.EPERM)}, OK, false, "not bound to a NUMA node: mbind: operation", "", ""},
		{"none", arenaMemory{err: errors.New("no memory")}, Missing, false, "none: no memory", "no buffers", "memory"},
	})
}

// TestArenaHere: there is memory, for everybody, and the check of huge pages and this
// one agree.
func TestArenaHere(t *testing.T) {
	p := newPatient(Options{}, host{os.DirFS("/")})
	f := lookArena(p).(arenaMemory)
	if f.err != nil || f.Bytes != 4<<20 {
		t.Fatalf("%d bytes, %v", f.Bytes, f.err)
	}
	huge := lookHugePages(p).(hugePages)
	if (f.Huge > 0) != (huge.HugeTLB || huge.Transparent) {
		t.Errorf("an arena of %s, %d bytes of it huge; to be had: %v, %v", f.Pages, f.Huge, huge.HugeTLB, huge.Transparent)
	}
}

func TestArenaRefused(t *testing.T) {
	if !privilege.Refused(t, syscall.EPERM, sys.SYS_MADVISE) {
		return
	}
	f := lookArena(newPatient(Options{}, host{os.DirFS("/")}))
	if got := f.judge(); got.state != Degraded {
		t.Errorf("without madvise(2): %+v", got)
	}
}
