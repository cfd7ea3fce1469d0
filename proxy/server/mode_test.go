package server_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
)

// unixListener is a configuration with a listener at a path and another listener.
func unixListener(path, upstream string) string {
	return fmt.Sprintf(`
listeners: [{name: l, bind: %q, upstream: u}, {name: other, bind: "127.0.0.1:0", upstream: u}]
upstreams: [{name: u, endpoints: [%q]}]`, "unix:"+path, upstream)
}

// TestModeIsTakenBackByAReload: when the file no longer names the mode of a path, the path gets
// its initial mode.
func TestModeIsTakenBackByAReload(t *testing.T) {
	t.Parallel()

	dir, up := t.TempDir(), named(t, "a")
	usual, path := filepath.Join(dir, "usual"), filepath.Join(dir, "s")
	want := func(mode os.FileMode) {
		t.Helper()
		if info, err := os.Lstat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("mode %v, %v, want %v", info.Mode(), err, mode)
		}
	}
	r := start(t, unixListener(usual, up))
	info, err := os.Lstat(usual)
	if err != nil {
		t.Fatal(err)
	}
	r.Reload(unixListener(path+"?mode=0600", up))
	want(0o600)
	r.Reload(unixListener(path, up))
	want(info.Mode().Perm())
	r.Reload(unixListener(path+"?mode=0606", up))
	want(0o606)
}

// TestReloadsWhileAPathIsSwapped: during reloads that change the mode, the owner of the directory
// replaces a socket's path by a link to a file of the listening user. The file keeps its mode.
func TestReloadsWhileAPathIsSwapped(t *testing.T) {
	t.Parallel()

	dir, victim, up := t.TempDir(), filepath.Join(t.TempDir(), "file"), named(t, "a")
	if err := os.WriteFile(victim, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	path, away := filepath.Join(dir, "s"), filepath.Join(dir, "away")
	r := start(t, unixListener(path+"?mode=0666", up))
	var over atomic.Bool
	var swapping sync.WaitGroup
	swapping.Go(func() {
		for !over.Load() {
			if os.Rename(path, away) == nil && os.Symlink(victim, path) == nil {
				_ = os.Remove(path)
			}
			_ = os.Rename(away, path)
		}
	})
	for i := range 100 {
		r.Reload(unixListener(path+[]string{"?mode=0600", "", "?mode=0666"}[i%3], up))
		if info, err := os.Lstat(victim); err != nil || info.Mode().Perm() != 0o600 {
			t.Fatalf("reload %d: the file has mode %v, %v", i, info.Mode(), err)
		}
	}
	over.Store(true)
	swapping.Wait()
}
