package pipe_test

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/privilege"
	"github.com/penstock/penstock/pipe"
)

func TestLine(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		name   string
		limits *pipe.Limits
		budget int
		want   int64
	}{
		{"default of an ordinary user", pipe.NewLimits(mib, 16384, 0, 20000, false), 0, 14336},
		{"named below the quota", pipe.NewLimits(mib, 16384, 0, 20000, false), 15000, 15000},
		{"named above the quota", pipe.NewLimits(mib, 16384, 0, 20000, false), 20000, 16384},
		{"hard quota below the soft one", pipe.NewLimits(mib, 16384, 800, 20000, false), 0, 700},
		{"hard quota alone", pipe.NewLimits(mib, 0, 800, 20000, false), 0, 700},
		{"exempt, by descriptors", pipe.NewLimits(mib, 16384, 800, 20000, true), 0, 2500 * 16},
		{"exempt, with a name", pipe.NewLimits(mib, 16384, 800, 20000, true), 50000, 50000},
		{"no quota", pipe.NewLimits(mib, 0, 0, 800, false), 0, 1600},
		{"descriptors without end", pipe.NewLimits(mib, 0, 0, 1<<30, false), 0, 1 << 18},
		{"none", pipe.NewLimits(mib, 16384, 0, 20000, false), -1, 0},
	} {
		if got := c.limits.Line(c.budget); got != c.want {
			t.Errorf("%s: %d pages, want %d", c.name, got, c.want)
		}
	}
}

func TestSizes(t *testing.T) {
	for max, want := range map[int][]int{
		1 << 20:   {64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20},
		64 << 10:  {64 << 10},
		16 << 10:  {16 << 10},
		4 << 10:   {4 << 10},
		300 << 10: {64 << 10, 128 << 10, 256 << 10},
	} {
		if got := pipe.NewLimits(max, 0, 0, 100, false).Sizes(); !slices.Equal(got, want) {
			t.Errorf("pipe-max-size %d: %v, want %v", max, got, want)
		}
	}
}

// TestReadLimits compares with the kernel's files, as root and as an ordinary
// user.
func TestReadLimits(t *testing.T) {
	wantLimits(t)
	t.Run("ordinary", func(t *testing.T) {
		if privilege.Ordinary(t) {
			wantLimits(t)
		}
	})
}

func wantLimits(t *testing.T) {
	t.Helper()
	set, err := sys.Capabilities()
	if err != nil {
		t.Fatal(err)
	}
	ns, _ := os.Readlink("/proc/self/ns/user")
	exempt := (set.Has(sys.CAP_SYS_ADMIN) || set.Has(sys.CAP_SYS_RESOURCE)) && ns == "user:[4026531837]"
	want := pipe.NewLimits(number(t, "max-size"), int64(number(t, "user-pages-soft")),
		int64(number(t, "user-pages-hard")), noFile(t), exempt)
	if got := pipe.ReadLimits(); os.Getpagesize() == 4096 && got != *want {
		t.Errorf("%+v, want %+v", got, *want)
	}
}

func noFile(t *testing.T) int64 {
	t.Helper()
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		t.Fatal(err)
	}
	return int64(min(files.Cur, 1<<30))
}

func number(t *testing.T, name string) int {
	t.Helper()
	text, err := os.ReadFile("/proc/sys/fs/pipe-" + name)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestNoResize: where a sandbox refuses to resize pipes, all have the default
// size.
func TestNoResize(t *testing.T) {
	if !privilege.Refused(t, syscall.EPERM, sys.SYS_FCNTL) {
		return
	}
	if sizes := pipe.ReadLimits().Sizes(); len(sizes) != 1 || sizes[0] != 16*os.Getpagesize() {
		t.Fatalf("sizes %v, want the default alone", sizes)
	}
}
