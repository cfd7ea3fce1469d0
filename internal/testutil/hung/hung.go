// Package hung has a file system that does not answer, for tests.
package hung

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/testutil/condition"
)

// Dir returns a directory for Mount. It is removed at the end of the test, though calls that hung may make files there until
// they are given up.
func Dir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "hung")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		condition.Await(t, dir+" is removed", func() bool { return os.RemoveAll(dir) == nil })
	})
	return dir
}

// Mount hides a directory behind a file system that answers no call, like one from a server that is gone. release fails
// the calls that hang, and shows the directory again; the end of the test calls it. A test without the permission to mount
// is skipped.
func Mount(t *testing.T, dir string) (release func()) {
	t.Helper()
	fd, err := syscall.Open("/dev/fuse", syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	if err == nil {
		err = syscall.Mount("hung", dir, "fuse.hung", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fd))
	}
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ENODEV) {
		t.Skip("needs the permission to mount a file system in user space:", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	release = sync.OnceFunc(func() {
		_ = syscall.Close(fd) // which ends all calls
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(release)
	return release
}
