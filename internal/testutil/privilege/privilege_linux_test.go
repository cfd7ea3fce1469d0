package privilege_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/sys"
	"github.com/penstock/penstock/internal/testutil/leak"
	"github.com/penstock/penstock/internal/testutil/privilege"
)

func TestMain(m *testing.M) { leak.Main(m) }

func TestOrdinary(t *testing.T) {
	root := os.Getuid() == 0
	if !privilege.Ordinary(t) {
		if !root {
			t.Fatal("an ordinary user was sent to a child")
		}
		return
	}
	set, err := sys.Capabilities()
	if err != nil || set != 0 {
		t.Fatalf("capabilities %#x, %v; want none", set, err)
	}
	if os.Getuid() == 0 {
		t.Fatal("still root")
	}
	if err := os.WriteFile(t.TempDir()+"/f", nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestOrdinarySubtest(t *testing.T) {
	for _, name := range []string{"with a space", "a|b"} {
		t.Run(name, func(t *testing.T) {
			if privilege.Ordinary(t) && os.Getuid() == 0 {
				t.Fatal("still root")
			}
		})
	}
}

func TestRefused(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.ENOSYS, syscall.EPERM} {
		t.Run(errno.Error(), func(t *testing.T) {
			if !privilege.Refused(t, errno, sys.SYS_SPLICE, sys.SYS_FCNTL) {
				return
			}
			if _, err := sys.Splice(-1, nil, -1, nil, 1, 0); !errors.Is(err, errno) {
				t.Errorf("splice: %v, want %v", err, errno)
			}
			if _, err := sys.GetFl(0); !errors.Is(err, errno) {
				t.Errorf("fcntl: %v, want %v", err, errno)
			}
			if _, err := sys.FstatMode(0); err != nil {
				t.Errorf("fstat: %v, want none", err)
			}
		})
	}
}

func TestAlone(t *testing.T) {
	if !privilege.Alone(t) {
		return
	}
	procs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range procs {
		// A process may have gone meanwhile.
		if info, err := os.Stat(dir); err == nil && filepath.Base(dir) != strconv.Itoa(os.Getpid()) &&
			info.Sys().(*syscall.Stat_t).Uid == uint32(os.Getuid()) {
			t.Errorf("process %s has the same user", dir)
		}
	}
}
